// What a kernel of a training step does, and what the GPU could do at most in its time. Values.
#pragma once
#include <string>
#include <string_view>

#include "base/types.h"

namespace spillway::app {

/// Of one GPU: peaks as its maker publishes them, and the shares of them that published measurements of good kernels reach.
struct Ceilings {
  /// H100 SXM. Peaks: NVIDIA's data sheet, dense bf16 989 TFLOP/s and HBM3 at 3.35 TB/s; PCIe 5.0 x16 carries 64 GB/s each way.
  double tensor_flops = 989e12, memory_bytes_per_s = 3.35e12, link_bytes_per_s = 64e9;
  i64 processors = 132;
  /// 989 TFLOP/s are 132 processors of 4096 a cycle at 1.83 GHz, which have 16 exponentials a cycle (Shah et al., arXiv:2407.08608,
  /// footnote 5, after the CUDA programming guide).
  double exps_per_s = 132 * 16 * 1.83e9;
  /// cuBLAS on square products of bf16: 716 TFLOP/s of 4096, the lower, and 795 of 8192 (Shankhdhar, github.com/pranjalssh/fast.cu).
  double product_share = 0.72;
  /// Our attention has FlashAttention-2's instructions (mma.sync), which reach up to 335 TFLOP/s on an H100 at heads of 128, forward and
  /// backward (Dao, arXiv:2307.08691, section 4.1): 396 while multiplying, since what is left of the time is one exponential for every four
  /// products of two vectors.
  double attention_share = 0.40;
  /// cuDNN's attention (wgmma), with all that it does between products, of heads of 128 at 8192 positions: 566 TFLOP/s forward and 470
  /// backward (flash-attention's pull request 1893), of heads of 64 at 1024 positions 373 and 348 (Shah et al., arXiv:2407.08608).
  double cudnn_forward_share = 0.57, cudnn_backward_share = 0.475, cudnn_narrow_forward_share = 0.377, cudnn_narrow_backward_share = 0.352;
  /// What copies reach, and PCIe; and, of a load, from when it is issued until its bytes are there. Round figures, not published ones.
  double memory_share = 0.9, link_share = 0.85, memory_latency_s = 0.7e-6;
  double launch_s = 2e-6;  // between the end of one kernel and the full speed of the next
};

enum class Work : u8 { products, attention, head, elementwise, embedding, optimizer, link };
constexpr int kWorks = 7;
std::string_view to_string(Work work);

/// Numbers are of one run of it.
struct Kernel {
  Work work = Work::elementwise;
  std::string name;
  double times = 0;        // that it runs in a step; a fraction where the last run is of less
  double flops = 0;        // on tensor cores
  double exps = 0;         // beside which nothing is multiplied
  double reaches = 0;      // share of the tensor cores' peak; 0: its kind's
  double bytes = 0;        // of the GPU's memory, or over the link
  double compute = 1;      // of the usual share of the tensor cores' peak
  double memory = 1;       // likewise of the memory's
  double model_flops = 0;  // of its FLOPs, what the model asks for: nothing twice, nothing masked
  bool to_gpu = false;     // over the link; else from it
  std::string note;        // why the shares are not 1
};

}  // namespace spillway::app
