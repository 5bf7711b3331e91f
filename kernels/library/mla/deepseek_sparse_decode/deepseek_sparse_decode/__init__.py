"""Base version: FlashMLA's sparse decode over rows of 656 bytes."""
