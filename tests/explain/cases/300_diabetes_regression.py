"""Linear regression on the diabetes table of scikit-learn, on a Mac."""
import torch
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split
from torch import nn

device = torch.device("mps")
torch.manual_seed(300)

X, y = load_diabetes(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=0)

X_train = torch.tensor(X_train)
X_test = torch.tensor(X_test)
y_train = torch.tensor(y_train).view(-1, 1)
y_test = torch.tensor(y_test).view(-1, 1)

X_train, y_train = X_train.to(device), y_train.to(device)
X_test, y_test = X_test.to(device), y_test.to(device)

model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 1)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(3):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(X_train), y_train)
    loss.backward()
    optimizer.step()
with torch.no_grad():
    print("test loss", round(nn.functional.mse_loss(model(X_test), y_test).item()))
print("OK")
