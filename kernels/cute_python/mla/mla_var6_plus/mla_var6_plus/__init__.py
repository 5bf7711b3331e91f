"""Base version: plan of other designs' kernels, old and newest tokens; n = 0 or t by model."""
