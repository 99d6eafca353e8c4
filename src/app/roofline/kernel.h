// Defines the input of the roofline estimate: the work of one GPU kernel of a
// training step, and the rates that the GPU can reach. The types are plain values.
#pragma once
#include <string>
#include <string_view>

#include "base/types.h"

namespace spillway::app {

/// Ceilings holds the rates that one GPU can reach: its peaks as the maker publishes
/// them, and the shares of these peaks that good kernels reach in published measurements.
struct Ceilings {
  /// These are the peaks of the H100 SXM from NVIDIA's data sheet: dense bf16 at
  /// 989 TFLOP/s and HBM3 at 3.35 TB/s. PCIe 5.0 x16 carries 64 GB/s each way.
  double tensor_flops = 989e12, memory_bytes_per_s = 3.35e12, link_bytes_per_s = 64e9;
  i64 processors = 132;  // number of streaming multiprocessors
  /// exps_per_s is the number of exponentials per second. Each of the 132 multiprocessors computes 16 exponentials
  /// per cycle (Shah et al., arXiv:2407.08608, footnote 5, after the CUDA programming guide). The clock of 1.83
  /// GHz follows from the peak: 989 TFLOP/s are 132 multiprocessors with 4096 FLOPs per cycle at 1.83 GHz.
  double exps_per_s = 132 * 16 * 1.83e9;
  /// product_share is the share of the peak that matrix products reach. cuBLAS reaches 716 TFLOP/s on square bf16 products
  /// of size 4096, which is this share, and 795 TFLOP/s on those of size 8192 (Shankhdhar, github.com/pranjalssh/fast.cu).
  double product_share = 0.72;
  /// Tensor cores multiply fp8 at twice the rate of bf16 (1979 TFLOP/s in the data sheet); the share that is reached is assumed to be
  /// equal.
  double fp8_factor = 2;
  /// attention_share is the share of the peak that Spillway's own attention reaches while it multiplies. It uses the same
  /// instructions as FlashAttention-2 (mma.sync), which reaches up to 335 TFLOP/s on an H100 with heads of width 128,
  /// forward and backward (Dao, arXiv:2307.08691, section 4.1). A part of FlashAttention-2's time goes to exponentials, one
  /// for every four products of two vectors. Without that part it reaches 396 TFLOP/s, which is this share of the peak.
  double attention_share = 0.40;
  /// These are the shares of the peak that cuDNN's attention (wgmma) reaches on average, including the time that it spends between the
  /// products. With heads of width 128 and 8192 positions it reaches 566 TFLOP/s forward and 470 backward (flash-attention's pull request
  /// 1893); with width 64 ("narrow") and 1024 positions it reaches 373 and 348 TFLOP/s (Shah et al., arXiv:2407.08608).
  double cudnn_forward_share = 0.57, cudnn_backward_share = 0.475, cudnn_narrow_forward_share = 0.377, cudnn_narrow_backward_share = 0.352;
  /// expert_share is the share of the peak that Spillway's products over the rows of experts reach. They use mma.sync, which alone reaches
  /// 62.9 % of the peak of an H100 (Luo et al., arXiv:2402.13499), and are assumed to reach the share product_share of that.
  double expert_share = 0.45;
  /// memory_share and link_share are the shares of the peaks that copies within GPU memory and over PCIe reach. memory_latency_s
  /// is the time in seconds from a load until its bytes arrive. All three are round figures, not published ones.
  double memory_share = 0.9, link_share = 0.85, memory_latency_s = 0.7e-6;
  double launch_s = 2e-6;  // seconds from the end of one kernel until the next runs at full speed
};

enum class Work : u8 { products, attention, head, elementwise, embedding, optimizer, link };
constexpr int kWorks = 7;
std::string_view to_string(Work work);

/// A kernel, or a copy over PCIe, that a step runs `times` times. All other numbers describe a single run of it.
struct Kernel {
  Work work = Work::elementwise;
  std::string name;
  double times = 0;        // number of runs in a step; a fraction if the last run is smaller than the others
  double flops = 0;        // FLOPs on tensor cores
  double exps = 0;         // number of exponentials; while it computes them, the kernel uses no tensor cores
  double reaches = 0;      // share of the tensor cores' peak that the kernel reaches; 0: Ceilings has the share
  double bytes = 0;        // bytes read and written in GPU memory, or copied over PCIe
  double compute = 1;      // factor by which the kernel's share of the tensor cores' peak differs from product_share
  double memory = 1;       // factor by which the kernel's share of the memory's peak differs from memory_share
  double model_flops = 0;  // the part of `flops` that the model itself needs: without recomputation and without masked scores
  bool to_gpu = false;     // true for a copy to the GPU, false for a copy from the GPU
  std::string note;        // explanation for the user, such as why a factor is not 1
};

}  // namespace spillway::app
