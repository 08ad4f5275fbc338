"""The declarations. `CATALOG` maps each op's name to the module here that declares it."""

CATALOG: dict[str, str] = {
    "layer_norm": "layer_norm",
    "native_layer_norm": "layer_norm",
    "native_layer_norm_backward": "layer_norm",
}
