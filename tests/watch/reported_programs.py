"""Programs after public reports of "the loss is NaN" and "eager and half precision differ", each with its guilty line.

Each is the pattern of a thread in the issues of a public project, rebuilt in a few lines: name -> the thread, and the
source. The line with `# here` is where the first NaN or infinity begins, or where the call outside its bound is made.
"""

from __future__ import annotations

#: name -> (where it was reported, source). `x`, `w` and `loss` are the programs' own names.
REPORTED: dict[str, tuple[str, str]] = {
    "masked_softmax": (
        "pytorch#41508: a row of attention whose keys are all masked",
        """
x = torch.randn(3, 4, requires_grad=True)
mask = torch.tensor([[0.0] * 4, [-math.inf] * 4, [0.0] * 4])
scores = x * 2
top = scores.amax(-1, keepdim=True)
masked = scores + mask
weights = torch.softmax(masked, -1)  # here
loss = (weights * x).sum()
""",
    ),
    "norm_of_zero": (
        "pytorch#6394: the gradient of a square root at zero",
        """
x = torch.zeros(3, 4, requires_grad=True)
length = (x * x).sum(-1)
root = length.sqrt()  # here
loss = root.sum()
""",
    ),
    "where_of_logarithm": (
        "pytorch#108618: where hides a logarithm and not its gradient",
        """
x = torch.tensor([0.0, 1.0, 2.0], requires_grad=True)
inner = x.log()  # here
loss = torch.where(x > 0, inner, torch.zeros_like(x)).sum()
""",
    ),
    "mean_of_nothing": (
        "pytorch#70348: a loss over labels that are all ignored",
        """
x = torch.randn(4, 5, requires_grad=True)
labels = torch.full((4,), -100)
loss = F.cross_entropy(x, labels)  # here
""",
    ),
    "deviation_of_one": (
        "pytorch#29372: the unbiased deviation of a single element",
        """
x = torch.randn(4, 1, requires_grad=True)
spread = x.std(-1)  # here
loss = spread.sum()
""",
    ),
    "variance_by_difference": (
        "flax#1491: the mean of squares minus the square of the mean is negative",
        """
x = (torch.full((2, 64), 4096.0) + torch.linspace(0, 0.01, 64)).requires_grad_()
variance = (x * x).mean(-1) - x.mean(-1) ** 2 - 1.0
loss = variance.sqrt().sum()  # here
""",
    ),
    "where_of_exponential": (
        "pytorch#68425: where hides an exponential and not its gradient",
        """
x = torch.tensor([100.0, -1.0], requires_grad=True)
powers = x.exp()  # here
loss = torch.where(x <= 0, powers, 1 + x).sum()
""",
    ),
    "epsilon_in_float16": (
        "optax#1754: the epsilon of Adam, which float16 rounds to zero, where a gradient is zero",
        """
w = torch.ones(4, dtype=torch.float16)
mean, square = torch.zeros_like(w), torch.zeros_like(w)
root = square.sqrt() + 1e-8
w -= 0.1 * (mean / root)  # here
""",
    ),
    "square_in_float16": (
        "pytorch#133085: squares of activations beyond 65504 in a root mean square norm",
        """
x = torch.full((2, 8), 300.0, dtype=torch.float16, requires_grad=True)
square = x.pow(2)  # here
loss = (x * torch.rsqrt(square.mean(-1, keepdim=True) + 1e-6)).sum()
""",
    ),
    "arc_cosine_at_one": (
        "pytorch#8069: the gradient of an arc cosine at one",
        """
x = torch.tensor([1.0, 0.5], requires_grad=True)
angle = torch.acos(x)  # here
loss = angle.sum()
""",
    ),
    "logarithm_of_a_sigmoid": (
        "candle#2561: log(1 - sigmoid(x)) of a large x",
        """
x = torch.tensor([3.0, 40.0], requires_grad=True)
rest = 1 - torch.sigmoid(x)
loss = rest.log().sum()  # here
""",
    ),
    "step_of_bfloat16": (
        "pytorch#60227: a step whose rate is rounded to the format of the parameter",
        """
w = torch.full((64,), 900.0, dtype=torch.bfloat16)
gradient = torch.full((64,), 1000.0, dtype=torch.bfloat16)
w.sub_(gradient, alpha=0.9)  # here
""",
    ),
}
