"""Small CIFAR-10 networks, their weights and a sample of images: the demo and tests run on them."""
