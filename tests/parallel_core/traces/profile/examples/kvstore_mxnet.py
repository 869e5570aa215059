"""Train on two devices, whose gradients a KVStore adds; nothing here knows of parallel-core."""

import sys

import mxnet as mx
from mxnet import autograd, gluon

devices = [mx.cpu(0), mx.cpu(1)]
mx.random.seed(0)
net = gluon.nn.HybridSequential()
net.add(gluon.nn.Dense(256, activation="relu"), gluon.nn.Dense(256), gluon.nn.Dense(10))
net.initialize(mx.init.Xavier(), ctx=devices)
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore="local")
loss_function = gluon.loss.SoftmaxCrossEntropyLoss()
shards = [
    (mx.nd.random.normal(shape=(512, 256), ctx=device), mx.nd.zeros((512,), ctx=device))
    for device in devices
]
for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 10):
    with autograd.record():
        losses = [loss_function(net(images), labels) for images, labels in shards]
    autograd.backward(losses)
    trainer.step(1024)
    mx.nd.waitall()
