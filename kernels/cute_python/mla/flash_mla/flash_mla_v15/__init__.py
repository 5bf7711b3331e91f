"""v15: parts that many workers share are merged by bulk copies, in little code."""
