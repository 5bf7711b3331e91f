"""HyperMLA: a workbench and knowledge base for Multi-head Latent Attention GPU kernels."""

__version__ = "0.1.0"
