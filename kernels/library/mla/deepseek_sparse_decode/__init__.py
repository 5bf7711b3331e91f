"""DeepSeek's FlashMLA: sparse decode over lists of rows in fp8, for Hopper."""
