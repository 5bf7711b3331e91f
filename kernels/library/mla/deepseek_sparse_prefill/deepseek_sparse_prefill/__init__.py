"""Base version: FlashMLA's sparse prefill."""
