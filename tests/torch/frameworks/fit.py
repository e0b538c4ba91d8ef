# SPDX-License-Identifier: Apache-2.0
"""Trains a small network with a framework, as its users write it, and prints a digest of the parameters.

    torchrun --nproc-per-node 2 fit.py FRAMEWORK BACKEND
    python fit.py ray BACKEND               # Ray Train starts the processes itself.

FRAMEWORK is lightning, lightning-fsdp, fabric, trainer or accelerate. The backend is chosen as docs/pytorch.md says.
"""

import hashlib
import sys
import tempfile

import torch
import torch.distributed as dist

EXAMPLES, WIDTH, STEPS = 64, 8, 6


class Examples(torch.utils.data.Dataset):
    def __len__(self):
        return EXAMPLES

    def __getitem__(self, i):
        generator = torch.Generator().manual_seed(i)
        x = torch.randn(WIDTH, generator=generator)
        return {"x": x, "labels": x.sum().reshape(1)}


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.Sequential(torch.nn.Linear(WIDTH, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))

    def forward(self, x, labels=None):
        y = self.layers(x)
        return {"loss": torch.nn.functional.mse_loss(y, labels), "logits": y}


def fit_lightning(backend: str, sharded: bool) -> torch.nn.Module:
    import lightning
    from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = Network()

        def configure_model(self):
            if sharded:
                torch.distributed.fsdp.fully_shard(self.network, mesh=self.device_mesh["data_parallel"])

        def training_step(self, batch):
            return self.network(**batch)["loss"]

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    strategy = ModelParallelStrategy if sharded else DDPStrategy
    sizes = {"data_parallel_size": 2, "tensor_parallel_size": 1} if sharded else {}
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy=strategy(process_group_backend=backend, **sizes), max_steps=STEPS,
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )
    module = Module()
    trainer.fit(module, torch.utils.data.DataLoader(Examples(), batch_size=4))
    return module.network


def fit_fabric(backend: str) -> torch.nn.Module:
    import lightning
    from lightning.fabric.strategies import DDPStrategy

    fabric = lightning.Fabric(accelerator="cpu", devices=2, strategy=DDPStrategy(process_group_backend=backend))
    fabric.launch()
    network = Network()
    model, optimizer = fabric.setup(network, torch.optim.SGD(network.parameters(), lr=0.1))
    loader = fabric.setup_dataloaders(torch.utils.data.DataLoader(Examples(), batch_size=4))
    for _, batch in zip(range(STEPS), loader):
        optimizer.zero_grad()
        fabric.backward(model(**batch)["loss"])
        optimizer.step()
    return network


def fit_trainer(backend: str) -> torch.nn.Module:
    from transformers import Trainer, TrainingArguments

    # TrainingArguments(ddp_backend=...) accepts only the backends that it knows.
    dist.init_process_group(backend)
    network = Network()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, use_cpu=True, max_steps=STEPS, per_device_train_batch_size=4, learning_rate=0.1,
            report_to=[], disable_tqdm=True, save_strategy="no",
        )
        trainer = Trainer(network, arguments, train_dataset=Examples())
        trainer.train()
        trainer.evaluate(Examples())
    return network


def fit_accelerate(backend: str) -> torch.nn.Module:
    from accelerate import Accelerator

    dist.init_process_group(backend)  # Accelerator() uses the existing group.
    accelerator = Accelerator(cpu=True)
    network = Network()
    loader = torch.utils.data.DataLoader(Examples(), batch_size=4)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(network, optimizer, loader)
    for _, batch in zip(range(STEPS), loader):
        optimizer.zero_grad()
        accelerator.backward(model(**batch)["loss"])
        optimizer.step()
    accelerator.wait_for_everyone()
    return network


def fit_ray(backend: str) -> None:
    from ray.train import ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer, prepare_model

    def train() -> None:
        torch.set_num_threads(1)
        model = prepare_model(Network())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        sampler = torch.utils.data.DistributedSampler(Examples(), shuffle=False)
        for _, batch in zip(range(STEPS), torch.utils.data.DataLoader(Examples(), batch_size=4, sampler=sampler)):
            optimizer.zero_grad()
            model(**batch)["loss"].backward()
            optimizer.step()
        assert dist.get_backend() == backend and dist.get_world_size() == 2, dist.get_backend()
        print_digest(model)

    TorchTrainer(
        train, torch_config=TorchConfig(backend=backend), scaling_config=ScalingConfig(num_workers=2)
    ).fit()


def print_digest(network: torch.nn.Module) -> None:
    parameters = [getattr(p, "full_tensor", lambda p=p: p)().detach().flatten() for p in network.parameters()]
    digest = hashlib.sha256(torch.cat(parameters).numpy().tobytes()).hexdigest()
    if dist.get_rank() == 0:
        print(f"digest {digest}", flush=True)


def main() -> None:
    framework, backend = sys.argv[1:]
    if framework == "ray":
        return fit_ray(backend)
    fits = {
        "lightning": lambda: fit_lightning(backend, sharded=False),
        "lightning-fsdp": lambda: fit_lightning(backend, sharded=True),
        "fabric": lambda: fit_fabric(backend),
        "trainer": lambda: fit_trainer(backend),
        "accelerate": lambda: fit_accelerate(backend),
    }
    network = fits[framework]()
    assert dist.get_backend() == backend and dist.get_world_size() == 2, dist.get_backend()
    print_digest(network)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
