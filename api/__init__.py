"""opassay: production PyTorch ops that are right under every transform, and the proof."""
