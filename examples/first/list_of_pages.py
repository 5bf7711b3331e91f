"""Reads keys from pages that are tensors of their own: cuTile takes a list of arrays."""

from typing import Annotated

import cuda.tile as ct
import torch

PAGE, WIDTH = 16, 32


@ct.kernel
def copied(pages: Annotated[list, ct.ListAnnotation(element=ct.ArrayAnnotation())], table, out):
    page = ct.load(table, (ct.bid(0),), (1,)).item()  # which page is this block's
    tile = ct.load(pages[page], (0, 0), (PAGE, WIDTH))
    ct.store(out, (ct.bid(0), 0), tile)


pages = [torch.randn(PAGE, WIDTH).cuda() for _ in range(5)]  # five allocations
table = torch.tensor([3, 0, 4], dtype=torch.int32).cuda()
out = torch.empty(3 * PAGE, WIDTH).cuda()
ct.launch(torch.cuda.current_stream(), (3,), copied, (pages, table, out))
print("right:", torch.equal(out, torch.cat([pages[i] for i in table.tolist()])))
