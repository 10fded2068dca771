"""A small GAN that draws the same preview pictures after every epoch."""
import torch
import torch.nn as nn

LATENT = 6


def generator():
    return nn.Sequential(nn.ConvTranspose2d(LATENT, 8, 4), nn.ReLU(), nn.ConvTranspose2d(8, 1, 4, 2, 1), nn.Tanh())


def discriminator():
    return nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(8, 1, 4), nn.Flatten(0))


class GAN:
    def __init__(self, device):
        self.device = device
        self.g, self.d = generator().to(device), discriminator().to(device)
        self.preview_noise = torch.randn(4, LATENT, 1, 1)
        self.g_opt = torch.optim.Adam(self.g.parameters(), lr=2e-4, betas=(0.5, 0.999))
        self.d_opt = torch.optim.Adam(self.d.parameters(), lr=2e-4, betas=(0.5, 0.999))
        self.bce = nn.BCEWithLogitsLoss()

    def epoch(self, real):
        fake = self.g(torch.randn(len(real), LATENT, 1, 1, device=self.device))
        d_real, d_fake = self.d(real), self.d(fake.detach())
        d_loss = self.bce(d_real, torch.ones_like(d_real)) + self.bce(d_fake, torch.zeros_like(d_fake))
        self.d_opt.zero_grad()
        d_loss.backward()
        self.d_opt.step()
        again = self.d(fake)
        g_loss = self.bce(again, torch.ones_like(again))
        self.g_opt.zero_grad()
        g_loss.backward()
        self.g_opt.step()
        return d_loss.item(), g_loss.item()

    @torch.no_grad()
    def preview(self):
        return self.g(self.preview_noise).cpu()


torch.manual_seed(54)
gan = GAN(torch.device("cuda"))
for epoch in range(2):
    print(epoch, gan.epoch(torch.rand(5, 1, 8, 8, device=gan.device) * 2 - 1))
    pictures = gan.preview()
print("preview", tuple(pictures.shape))
print("OK")
