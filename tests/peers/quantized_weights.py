#!/usr/bin/env python3
"""Makes tests/data/quantized/bitsandbytes.safetensors: numbers, and what bitsandbytes makes of them in NF4 with blocks of 64.

Needs torch, safetensors and bitsandbytes (PyPI), on a CPU. Writes the file named on the command line.
"""
import sys

import torch
from bitsandbytes.functional import dequantize_4bit, quantize_4bit
from safetensors.torch import save_file

torch.manual_seed(5)
values = torch.cat([0.02 * torch.randn(64 * 100), torch.linspace(-1, 1, 64 * 20), torch.zeros(64), 1e-30 * torch.randn(64)])
codes, state = quantize_4bit(values, blocksize=64, quant_type="nf4", compress_statistics=False)
save_file({"values": values, "nf4": dequantize_4bit(codes, state).float().contiguous()}, sys.argv[1])
