"""v1: plan whose stages fill the GPU; n = 0 or t by the model and measured efficiency."""
