// ZeroCheckpoint reads what a DeepSpeed training run saved (engine.save_checkpoint): the fp32 weights, the optimizer's state arrays, and
// how far the run had come. It reads checkpoints of ZeRO stage 1, 2 or 3 with any number of data-parallel ranks, and universal checkpoints.
// The layout of the files is defined by DeepSpeed (deepspeed/utils/zero_to_fp32.py and deepspeed/checkpoint/ds_to_universal.py of 0.19 read
// it). Stages 1 and 2 concatenate the parameters of each group and cut the result into one partition per rank; stage 3 partitions each
// parameter. The input is untrusted and read as in torch_file.h: no code in it is run, and every size is checked against what the files
// hold. Reading streams. Thread-safe after construction.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>

#include "data/safetensors/tensor_reader.h"

namespace spillway::data {

/// The tensors are the weights: trained weights in fp32, and frozen weights and buffers in the dtype in which they are stored.
class ZeroCheckpoint : public TensorReader {
 public:
  /// Opens a global_step folder, or the folder above it, in which a file `latest` names the
  /// global_step folder. Throws Error(data) "[deepspeed] <path>: <why>", or as torch_file.h does.
  explicit ZeroCheckpoint(const std::filesystem::path& folder);
  ~ZeroCheckpoint() override;

  const std::filesystem::path& folder() const;

  /// Returns the names of the optimizer's state arrays, sorted, as torch.optim calls them (such as "exp_avg").
  std::vector<std::string> arrays() const;
  /// Returns true if the checkpoint has this optimizer array for this weight, with as many elements as the weight.
  bool has_array(const TensorInfo& tensor, const std::string& array) const;
  void read_array(const TensorInfo& tensor, const std::string& array, i64 begin, std::span<double> out) const;

  /// The state of fp16's dynamic loss scale, in DeepSpeed's terms.
  struct Scale {
    double scale = 1;
    i64 steps_since_overflow = 0;
  };
  struct Standing {
    i64 steps = 0;    // DeepSpeed's global_steps, which include skipped steps
    i64 updates = 0;  // the number of optimizer updates that were applied: Adam's t
    i64 samples = 0;  // the number of rows of training data that were consumed
    std::optional<Scale> loss_scale;
    std::string version;  // DeepSpeed's version; empty if it is unknown
    int stage = 0;        // the ZeRO stage; 0 for a universal checkpoint
    i64 ranks = 0;
  };
  const Standing& standing() const;

 private:
  void widen(const TensorInfo& tensor, i64 begin, std::span<double> out) const override;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spillway::data
