"""Base version: TMA loads run ahead, wgmma products and softmax take turns."""
