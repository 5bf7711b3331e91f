"""flashlib's CuTe and Triton kernels on small problems, held against torch."""

import sys

import torch

torch.manual_seed(0)


def near(a, b, tolerance=2e-2):
    torch.testing.assert_close(a.float(), b.float(), atol=tolerance, rtol=tolerance)


def kmeans(n=512, d=64, k=32):
    from flashlib import flash_kmeans_cutedsl as tried

    x = torch.randn(1, n, d, device="cuda", dtype=torch.bfloat16)
    ids = tried(x, k, max_iters=1)[0]
    assert ids.numel() == n
    assert int(ids.max()) < k


def knn(n=256, d=64, k=8):
    from flashlib import flash_knn_triton as tried

    x = torch.randn(1, n, d, device="cuda", dtype=torch.bfloat16)
    print([tuple(t.shape) for t in tried(x, x, k)])


def trimul(n=32, c=64):
    import fast_trimul
    from fast_trimul.integrations.checks import verify

    print(verify.__doc__)
    print(fast_trimul.list_backends())
    module = fast_trimul.FastTriangleMultiplication(c).cuda()
    x = torch.randn(1, n, n, c, device="cuda")
    with torch.no_grad():
        out = module(x)
    print(out.shape)


if __name__ == "__main__":
    globals()[sys.argv[1]](*map(int, sys.argv[2:]))
