"""The calls that servers make for MLA decode, over kernels of ours that read pages.

``flashmla`` has FlashMLA's, ``flashinfer`` FlashInfer's, ``operators`` what is below both.
"""
