"""DeepSeek's FlashMLA: sparse prefill over lists of rows in bfloat16, for Hopper."""
