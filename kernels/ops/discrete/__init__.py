import torch
def _gen(seed, generation, k):
    g = torch.Generator(); s = (int(seed.reshape(-1)[0]) * 1000003 + int(generation) * 7919 + k) % (2**63)
    return g.manual_seed(s)
def sample_categorical(table, sizes, n, *, seed, generation):
    g = _gen(seed, generation, 1)
    p = table.view(*table.shape[:-1], len(sizes), sizes[0])
    flat = p.reshape(-1, sizes[0])
    x = torch.multinomial(flat, n, replacement=True, generator=g)  # (B*V, n)
    return x.view(*p.shape[:-1], n).transpose(-1, -2).contiguous()
def sample_permutation(table, n, *, seed, generation):
    g = _gen(seed, generation, 2)
    assert table.dim() == 2
    m = table.shape[-1]
    alive = torch.ones(n, m, dtype=torch.float64)
    row = table[0].expand(n, m)
    out = []
    for _ in range(m):
        w = row * alive
        w = torch.where(w.sum(1, keepdim=True) > 0, w, alive)
        i = torch.multinomial(w, 1, generator=g)
        alive = alive.scatter(1, i, 0.0)
        out.append(i)
        row = table[1:][i[:, 0]]
    return torch.cat(out, 1)
sample_categorical_reference = sample_categorical
sample_permutation_reference = sample_permutation
