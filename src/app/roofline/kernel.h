// The input of the roofline estimate: the work of one GPU kernel of a training step, and the peak rates of the GPU. The types are plain
// values.
#pragma once
#include <string>
#include <string_view>

#include "base/types.h"

namespace spillway::app {

/// The rates that one GPU can reach: its peaks as the maker publishes them, and the shares of these peaks that good kernels reach in
/// published measurements.
struct Ceilings {
  /// Peaks of the H100 SXM from NVIDIA's data sheet: dense bf16 at 989 TFLOP/s and HBM3 at 3.35 TB/s. PCIe 5.0 x16 carries 64 GB/s each
  /// way.
  double tensor_flops = 989e12, memory_bytes_per_s = 3.35e12, link_bytes_per_s = 64e9;
  i64 processors = 132;  // number of multiprocessors
  /// Exponentials per second: 989 TFLOP/s are 132 multiprocessors with 4096 FLOPs a cycle each at 1.83 GHz, and each has 16 exponentials a
  /// cycle (Shah et al., arXiv:2407.08608, footnote 5, after the CUDA programming guide).
  double exps_per_s = 132 * 16 * 1.83e9;
  /// Share of the peak that matrix products reach. cuBLAS reaches 716 TFLOP/s on square bf16 products of size 4096, which is taken, and 795
  /// of size 8192 (Shankhdhar, github.com/pranjalssh/fast.cu).
  double product_share = 0.72;
  /// Share of the peak that our attention reaches while it multiplies. It uses the instructions of FlashAttention-2 (mma.sync), which
  /// reaches up to 335 TFLOP/s on an H100 with heads of width 128, forward and backward (Dao, arXiv:2307.08691, section 4.1). That is 396
  /// TFLOP/s while it multiplies, for the rest of its time goes to exponentials, one for every four products of two vectors.
  double attention_share = 0.40;
  /// Shares of the peak that cuDNN's attention (wgmma) reaches, including all that it does between the products. With heads of width 128
  /// and 8192 positions it reaches 566 TFLOP/s forward and 470 backward (flash-attention's pull request 1893); with width 64 ("narrow") and
  /// 1024 positions 373 and 348 (Shah et al., arXiv:2407.08608).
  double cudnn_forward_share = 0.57, cudnn_backward_share = 0.475, cudnn_narrow_forward_share = 0.377, cudnn_narrow_backward_share = 0.352;
  /// Shares of the peaks that copies within GPU memory and over PCIe reach, and the seconds from a load until its bytes arrive. These are
  /// round figures, not published ones.
  double memory_share = 0.9, link_share = 0.85, memory_latency_s = 0.7e-6;
  double launch_s = 2e-6;  // seconds from the end of one kernel until the next one runs at full speed
};

enum class Work : u8 { products, attention, head, elementwise, embedding, optimizer, link };
constexpr int kWorks = 7;
std::string_view to_string(Work work);

/// A kernel, or a copy over PCIe, that a step runs `times` times. The other numbers are those of one run.
struct Kernel {
  Work work = Work::elementwise;
  std::string name;
  double times = 0;        // runs in a step; a fraction if the last run is a smaller one
  double flops = 0;        // FLOPs on tensor cores
  double exps = 0;         // exponentials, during which nothing is multiplied
  double reaches = 0;      // share of the tensor cores' peak that it reaches; 0: the share in Ceilings for its kind of work
  double bytes = 0;        // bytes read and written in GPU memory, or copied over PCIe
  double compute = 1;      // factor on the share of the tensor cores' peak
  double memory = 1;       // factor on the share of the memory's peak
  double model_flops = 0;  // the part of `flops` that the model asks for: without recomputation and without masked scores
  bool to_gpu = false;     // direction of a copy: to the GPU, else from it
  std::string note;        // why the factors are not 1
};

}  // namespace spillway::app
