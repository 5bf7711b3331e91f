"""Serving API: FlashMLA's and FlashInfer's MLA decode calls, over our kernels for paged caches.

``flashmla`` has FlashMLA's, ``flashinfer`` FlashInfer's, ``operators`` what is below both.
"""
