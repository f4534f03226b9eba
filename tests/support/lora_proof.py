"""Adapters of few rows in Triton's interpreter: equal to a loop over rows, in float64."""

from __future__ import annotations

import torch

from tilewright.backends.cuda.lora import few_rows


def main() -> None:
    for dtype, k, n, ranks in (
        (torch.float64, 300, 70, [3, 16, 3, 20]),
        (torch.float32, 129, 129, [1, 1]),
        (torch.bfloat16, 64, 128, [33]),
    ):
        torch.manual_seed(0)
        order = sorted(range(len(ranks)), key=ranks.__getitem__)
        pairs = []
        for rank in sorted({*ranks}):
            count = ranks.count(rank)
            a, b = torch.randn(count, k, rank), torch.randn(count, rank, n)
            pairs.append((a.to(dtype), b.to(dtype)))
        downs, ups = zip(*pairs, strict=True)
        every = [(a[i], b[i]) for a, b in pairs for i in range(len(a))]
        by_index = [every[order.index(i)] for i in range(len(ranks))]
        adapter = torch.tensor([*range(len(ranks)), -1, len(ranks), 0])
        x = torch.randn(len(adapter), 2 * k).to(dtype)[:, :k]
        base = torch.randn(len(adapter), n + 3).to(dtype)[:, 3:]
        scales = torch.linspace(0.5, 2, len(ranks)).to(dtype)
        found = few_rows.added(x, adapter, base, downs, ups, tuple(order), scales)
        for row, i in enumerate(adapter.tolist()):
            wanted = base[row].double()
            if 0 <= i < len(ranks):
                a, b = (one.double() for one in by_index[i])
                wanted = wanted + scales[i].double() * (x[row].double() @ a @ b)
            slack = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2**-7}[dtype]
            largest = wanted.abs().max()
            assert (found[row].double() - wanted).abs().max() <= slack * largest, (dtype, row)
    print("few rows: right")


if __name__ == "__main__":
    main()
