"""Train on one process with PyTorch, in the ordinary way; nothing here knows of parallel-core."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
images, labels = torch.randn(256, 64), torch.randint(0, 10, (256,))
for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 10):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    scheduler.step()
print(f"loss {loss.item():.6f}")
