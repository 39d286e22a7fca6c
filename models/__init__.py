"""Small CIFAR-10 networks, their trained weights and a sample of real images: what the demo and the tests run on."""
