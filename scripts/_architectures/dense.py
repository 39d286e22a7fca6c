"""An answer per pixel or per box: segmentation, detection, super-resolution."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from scripts._architectures._parts import Made, Size, conv_bn, of_images
from scripts._architectures.classification import GroupedBlock


def _double(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(conv_bn((before, after)), conv_bn((after, after)))


class UNet(nn.Module):
    """Two levels down by max pooling, two up; what was seen on the way down stands beside."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.down1, self.down2 = _double(3, c), _double(c, 2 * c)
        self.down3 = _double(2 * c, 4 * c)
        self.up2, self.conv2 = self.rise(4 * c, 2 * c), _double(4 * c, 2 * c)
        self.up1, self.conv1 = self.rise(2 * c, c), _double(2 * c, c)
        self.out = nn.Conv2d(c, 3, 1)

    def rise(self, before: int, after: int) -> nn.Module:
        """Twice the height and width: a transposed convolution."""
        return nn.ConvTranspose2d(before, after, 2, 2)

    def forward(self, image: Tensor) -> Tensor:
        """(N, 3, H, W) -> logits of the same shape."""
        a = self.down1(image)
        b = self.down2(F.max_pool2d(a, 2))
        x = self.up2(self.down3(F.max_pool2d(b, 2)))
        x = self.up1(self.conv2(torch.cat([b, x], 1)))
        logits: Tensor = self.out(self.conv1(torch.cat([a, x], 1)))
        return logits


def unet(size: Size) -> Made:
    """U-Net, two levels (Ronneberger et al. 2015)."""
    return of_images(UNet(24), 96) if size is Size.REAL else of_images(UNet(4), 32)


class ResizingUNet(UNet):
    """Rises by nearest neighbours and a 1x1 convolution."""

    def rise(self, before: int, after: int) -> nn.Module:
        """Twice the height and width."""
        return nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(before, after, 1))


def unet_up(size: Size) -> Made:
    """U-Net with Resize in place of transposed convolutions (Odena et al. 2016)."""
    return of_images(ResizingUNet(24), 96) if size is Size.REAL else of_images(ResizingUNet(4), 32)


class DeepLab(nn.Module):
    """Dilated convolutions side by side, with the mean of the image; resized to the image."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            conv_bn((3, c), 3, 2),
            GroupedBlock(c, 2 * c, 2 * c, 2),
            GroupedBlock(2 * c, 4 * c, 4 * c, 2),
        )
        dilated = [conv_bn((4 * c, 2 * c), 3, dilation=d) for d in (2, 4, 6)]
        self.pyramid = nn.ModuleList([conv_bn((4 * c, 2 * c), 1), *dilated])
        self.mean = nn.Sequential(nn.AdaptiveAvgPool2d(1), conv_bn((4 * c, 2 * c), 1))
        self.project, self.out = conv_bn((10 * c, 2 * c), 1), nn.Conv2d(2 * c, 5, 1)

    def forward(self, image: Tensor) -> Tensor:
        """(N, 3, H, W) -> logits (N, 5, H, W)."""
        x = self.backbone(image)
        mean = F.interpolate(self.mean(x), x.shape[-2:], mode="bilinear", align_corners=False)
        y = self.project(torch.cat([*[branch(x) for branch in self.pyramid], mean], 1))
        size = image.shape[-2:]
        return F.interpolate(self.out(y), size, mode="bilinear", align_corners=False)


def deeplab(size: Size) -> Made:
    """DeepLabV3's head on a small ResNet (Chen et al. 2017)."""
    return of_images(DeepLab(32), 128) if size is Size.REAL else of_images(DeepLab(4), 48)


class C2f(nn.Module):
    """Ultralytics' C2f with one bottleneck: halves, a residual, all of it side by side."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        half = after // 2
        self.conv1 = conv_bn((before, after), 1, act=nn.SiLU)
        first, second = (conv_bn((half, half), act=nn.SiLU) for _ in range(2))
        self.bottleneck = nn.Sequential(first, second)
        self.conv2 = conv_bn((3 * half, after), 1, act=nn.SiLU)

    def forward(self, x: Tensor) -> Tensor:
        """(N, before, H, W) -> (N, after, H, W)."""
        parts = list(self.conv1(x).chunk(2, 1))
        parts.append(parts[-1] + self.bottleneck(parts[-1]))
        y: Tensor = self.conv2(torch.cat(parts, 1))
        return y


class Yolo(nn.Module):
    """C2f and SPPF, one level up, two heads with three anchors each, boxes decoded inside."""

    strides = (4.0, 8.0)

    def __init__(self, c: int, side: int, classes: int = 4) -> None:
        super().__init__()
        self.each = 5 + classes
        act = nn.SiLU
        stem = [conv_bn((3, c), 3, 2, act=act), conv_bn((c, 2 * c), 3, 2, act=act)]
        self.fine = nn.Sequential(*stem, C2f(2 * c, 2 * c))
        down = conv_bn((2 * c, 4 * c), 3, 2, act=act)
        self.coarse = nn.Sequential(down, C2f(4 * c, 4 * c))
        self.before_pool = conv_bn((4 * c, 2 * c), 1, act=act)
        self.after_pool = conv_bn((8 * c, 4 * c), 1, act=act)
        self.neck = C2f(6 * c, 2 * c)
        self.head1, self.head2 = (nn.Conv2d(n * c, 3 * self.each, 1) for n in (2, 4))
        for i, stride in enumerate(self.strides):
            steps = torch.arange(side // int(stride))
            y, x = torch.meshgrid(steps, steps, indexing="ij")
            self.register_buffer(f"grid{i}", torch.stack([x, y], -1).float()[None, None] - 0.5)
            self.register_buffer(f"anchors{i}", (torch.rand(1, 3, 1, 1, 2) * 3 + 1) * stride)

    def pooled(self, x: Tensor) -> Tensor:
        """SPPF: max pools of one another side by side; (N, 4c, H, W) -> the same shape."""
        pools = [self.before_pool(x)]
        for _ in range(3):
            pools.append(F.max_pool2d(pools[-1], 5, 1, 2))
        y: Tensor = self.after_pool(torch.cat(pools, 1))
        return y

    def boxes(self, x: Tensor, level: int) -> Tensor:
        """Centre, size, confidence and classes (N, 3 H W, each) of a head's (N, 3 each, H, W)."""
        n, _, height, width = x.shape
        x = x.view(n, 3, self.each, height, width).permute(0, 1, 3, 4, 2).sigmoid()
        centre, extent, rest = torch.split(x, [2, 2, self.each - 4], 4)
        qparams, anchors = self.get_buffer(f"grid{level}"), self.get_buffer(f"anchors{level}")
        centre = (centre * 2 + qparams) * self.strides[level]
        extent = (extent * 2) ** 2 * anchors
        return torch.cat((centre, extent, rest), 4).reshape(n, -1, self.each)

    def forward(self, image: Tensor) -> Tensor:
        """Boxes (N, boxes, 5 + classes) of images (N, 3, side, side)."""
        fine = self.fine(image)
        coarse = self.pooled(self.coarse(fine))
        up = F.interpolate(coarse, scale_factor=2, mode="nearest")
        fine = self.neck(torch.cat([fine, up], 1))
        levels = (self.head1(fine), self.head2(coarse))
        return torch.cat([self.boxes(x, i) for i, x in enumerate(levels)], 1)


def yolo(size: Size) -> Made:
    """YOLOv8's blocks (Jocher et al. 2023) with YOLOv5's anchors and decoding."""
    return of_images(Yolo(24, 128), 128) if size is Size.REAL else of_images(Yolo(4, 32), 32)


class Ssd(nn.Module):
    """Two levels of features, a head for classes and one for boxes on each."""

    def __init__(self, c: int, classes: int = 5) -> None:
        super().__init__()
        self.classes, act = classes, nn.ReLU6
        self.level1 = nn.Sequential(
            conv_bn((3, c), 3, 2, act=act),
            conv_bn((c, c), groups=c, act=act),
            conv_bn((c, 2 * c), 1, act=act),
            conv_bn((2 * c, 2 * c), 3, 2, groups=2 * c, act=act),
            conv_bn((2 * c, 4 * c), 1, act=act),
        )
        self.level2 = nn.Sequential(
            conv_bn((4 * c, 2 * c), 1, act=act), conv_bn((2 * c, 4 * c), 3, 2, act=act)
        )
        self.classify, self.locate = (
            nn.ModuleList([nn.Conv2d(4 * c, 4 * each, 3, padding=1) for _ in range(2)])
            for each in (classes, 4)
        )

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Shares (N, boxes, classes) and places (N, boxes, 4)."""
        x = self.level1(image)
        levels = (x, self.level2(x))

        def flat(heads: nn.ModuleList, each: int) -> Tensor:
            found = [
                head(x).permute(0, 2, 3, 1).reshape(image.shape[0], -1, each)
                for head, x in zip(heads, levels, strict=True)
            ]
            return torch.cat(found, 1)

        return flat(self.classify, self.classes).softmax(-1), flat(self.locate, 4)


def ssd(size: Size) -> Made:
    """SSDLite (Liu et al. 2015; Sandler et al. 2018): depthwise, ReLU6, two outputs."""
    return of_images(Ssd(32), 128) if size is Size.REAL else of_images(Ssd(4), 32)


class SubPixel(nn.Module):
    """Three convolutions with tanh, then a pixel shuffle by 3."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, c, 5, padding=2)
        self.conv2 = nn.Conv2d(c, c // 2, 3, padding=1)
        self.conv3 = nn.Conv2d(c // 2, 9, 3, padding=1)
        self.shuffle = nn.PixelShuffle(3)

    def forward(self, image: Tensor) -> Tensor:
        """(N, 1, H, W) -> (N, 1, 3H, 3W)."""
        x = torch.tanh(self.conv2(torch.tanh(self.conv1(image))))
        y: Tensor = self.shuffle(self.conv3(x))
        return y


def espcn(size: Size) -> Made:
    """ESPCN (Shi et al. 2016)."""
    return of_images(SubPixel(64), 64, 1) if size is Size.REAL else of_images(SubPixel(8), 16, 1)


class Edsr(nn.Module):
    """Residual blocks without norm, a pixel shuffle by 2, added to the image made larger."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, c, 3, padding=1)
        self.up, self.last = nn.Conv2d(c, 4 * c, 3, padding=1), nn.Conv2d(c, 3, 3, padding=1)
        act = nn.LeakyReLU(0.1)
        self.blocks = nn.ModuleList(
            [
                nn.Sequential(nn.Conv2d(c, c, 3, padding=1), act, nn.Conv2d(c, c, 3, padding=1))
                for _ in range(3)
            ]
        )

    def forward(self, image: Tensor) -> Tensor:
        """(N, 3, H, W) -> (N, 3, 2H, 2W)."""
        x = y = self.first(image)
        for block in self.blocks:
            y = y + 0.3 * block(y)
        larger = F.interpolate(image, scale_factor=2, mode="bilinear", align_corners=False)
        z: Tensor = self.last(F.pixel_shuffle(self.up(x + y), 2)) + larger
        return z


def edsr(size: Size) -> Made:
    """EDSR, three blocks (Lim et al. 2017), with a leaky ReLU and a bilinear skip."""
    return of_images(Edsr(48), 64) if size is Size.REAL else of_images(Edsr(8), 16)
