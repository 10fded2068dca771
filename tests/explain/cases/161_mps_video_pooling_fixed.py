"""Features of short clips: pooled to a small grid in time and space."""
import torch
import torch.nn.functional as F

DEVICE = "mps"


def grid_features(clip):
    # (B, C, T, H, W) -> (B, C * 2 * 4 * 4)
    grid = F.avg_pool3d(clip, (clip.shape[-3] // 2, clip.shape[-2] // 4, clip.shape[-1] // 4))
    return grid.flatten(1)


def main():
    torch.manual_seed(2)
    clips = torch.rand(2, 3, 8, 16, 16).to(DEVICE)
    clip = clips - clips.mean()
    features = grid_features(clip)
    print("features", tuple(features.shape), round(features.std().item(), 4))
    print("OK")


if __name__ == "__main__":
    main()
