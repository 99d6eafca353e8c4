// What a training run of DeepSpeed's saved (engine.save_checkpoint) with ZeRO stage 1, 2 or 3 at any number of data-parallel ranks, or as a
// universal checkpoint: its weights in fp32, the arrays of its optimizer, and where it stood. Their layout is DeepSpeed's own
// (deepspeed/utils/zero_to_fp32.py and deepspeed/checkpoint/ds_to_universal.py of 0.19 read it): stages 1 and 2 lay the parameters of each
// group behind each other and cut that into a partition a rank; stage 3 cuts each parameter. An untrusted input, read as torch_file.h's
// files are: nothing is run, every size is checked against what the files hold. Readers stream. Thread-safe once made.
#pragma once
#include <memory>
#include <optional>

#include "data/safetensors.h"

namespace spillway::data {

class ZeroCheckpoint {
 public:
  /// A global_step folder, or the one above it whose `latest` names it. Throws Error(data), "[deepspeed] <path>: <why>" or as
  /// torch_file.h.
  explicit ZeroCheckpoint(const std::filesystem::path& folder);
  ZeroCheckpoint(ZeroCheckpoint&&) noexcept;
  ~ZeroCheckpoint();

  const std::filesystem::path& folder() const;
  /// Its weights: trained ones in fp32, frozen ones and buffers as they were.
  const std::vector<TensorInfo>& tensors() const;
  const TensorInfo* find(const std::string& name) const;
  /// Elements [begin, begin + out.size()) of a floating one, widened to fp64.
  void read_wide(const TensorInfo& tensor, i64 begin, std::span<double> out) const;

  /// Of the optimizer, as torch.optim calls them ("exp_avg"), sorted.
  std::vector<std::string> arrays() const;
  /// Whether the optimizer has that array of that weight, as large as it.
  bool has_array(const TensorInfo& tensor, const std::string& array) const;
  void read_array(const TensorInfo& tensor, const std::string& array, i64 begin, std::span<double> out) const;

  /// A dynamic loss scale of fp16, as DeepSpeed counts.
  struct Scale {
    double scale = 1;
    i64 steps_since_overflow = 0;
  };
  struct Standing {
    i64 steps = 0;    // global_steps, skipped ones counted
    i64 updates = 0;  // applied: Adam's t
    i64 samples = 0;  // rows consumed
    std::optional<Scale> loss_scale;
    std::string version;  // of DeepSpeed; empty: not known
    int stage = 0;        // 0: universal
    i64 ranks = 0;
  };
  const Standing& standing() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spillway::data
