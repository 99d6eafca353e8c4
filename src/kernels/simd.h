// Which instruction sets the Highway files are compiled for: the x86-64-v2 baseline, AVX2 and AVX-512, chosen at run time. Included before
// hwy/foreach_target.h by every such file.
#pragma once
// SSE4 in Highway's sense asks for AES instructions, which the baseline lacks: SSSE3 is the baseline's name there.
#define HWY_DISABLED_TARGETS HWY_SSE4
