"""Train on one process with MXNet, in the ordinary way; nothing here knows of parallel-core."""

import sys

import mxnet as mx
from mxnet import autograd, gluon

mx.random.seed(0)
net = gluon.nn.HybridSequential()
net.add(gluon.nn.Dense(128, activation="relu"), gluon.nn.Dense(10))
net.initialize(mx.init.Xavier())
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
loss_function = gluon.loss.SoftmaxCrossEntropyLoss()
images, labels = mx.nd.random.normal(shape=(256, 64)), mx.nd.zeros((256,))
for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 10):
    with autograd.record():
        loss = loss_function(net(images), labels)
    loss.backward()
    trainer.step(256)
print(f"loss {loss.mean().asscalar():.6f}")
