// The weights, gradient accumulators and optimizer state of a model at rest: a blob for each group and kind in its tier, and one scratch
// file for what lies on nvme. State tiles interleave m|v, so that a tile is one sequential read and one sequential write. In fp32 and fp64
// the weight is its own master. Thread-safety: as Blob; publish(), scan() and fill() between steps only.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "device/memory_pool.h"
#include "offload/blob.h"
#include "offload/staging_ring.h"
#include "parallel/plan.h"

namespace spillway::parallel {

using offload::TileRange;

/// What a rank's memory comes from. `engine` and `scratch` (a folder of this run alone) are needed only when the plan uses nvme.
struct Resources {
  MemoryPool* device = nullptr;
  MemoryPool* host = nullptr;
  offload::IoEngine* engine = nullptr;
  std::filesystem::path scratch;
  ThreadPool* threads = nullptr;
};

class ModelState {
 public:
  /// Allocates everything that rests. Weights and state are zero. Errors: Error(refused) over a budget or without disk space.
  ModelState(const Plan& plan, const Resources& resources);

  offload::Blob& weights(u16 group) { return *weights_[group]; }
  offload::Blob& gradients(u16 group, u8 use) { return *gradients_.at({group, use}); }
  /// On nvme: one tile a live micro-batch.
  offload::Blob& activations(u16 block) { return *activations_.at(block); }
  offload::Blob& optimizer(u16 group) { return *optimizer_[group]; }

  /// Readers see this generation; a step writes the next. Where a blob has one slot they are the same bytes.
  u64 generation() const { return generation_; }
  void publish() { ++generation_; }

  /// All tiles of a group's weights or optimizer state (what), in order, a few at a time: seen in place, or through the staging ring where
  /// they lie on nvme. fill() hands out memory to be written whole. For setting up, checkpoints and tests.
  void scan(What what, u16 group, const std::function<void(TileRange, std::span<const std::byte>)>& body);
  void fill(What what, u16 group, const std::function<void(TileRange, std::span<std::byte>)>& body);

  offload::StagingRing* staging() { return staging_ ? &*staging_ : nullptr; }
  offload::Traffic& traffic() { return traffic_; }
  /// Size of the scratch file; 0 when nothing lies on nvme.
  i64 nvme_bytes() const { return file_ ? file_->bytes() : 0; }

 private:
  void make_activations();
  std::unique_ptr<offload::Blob> make(Tier tier, const char* what, i64 tiles, i64 tile_bytes);
  offload::Blob& blob(What what, u16 group) { return what == What::weights ? *weights_[group] : *optimizer_[group]; }
  std::vector<TileRange> chunks(const offload::Blob& blob) const;

  const Plan& plan_;
  const Resources resources_;
  offload::Traffic traffic_;
  std::optional<offload::File> file_;
  i64 file_used_bytes_ = 0;
  std::vector<std::unique_ptr<offload::Blob>> weights_, optimizer_;
  std::map<std::pair<u16, u8>, std::unique_ptr<offload::Blob>> gradients_;
  std::map<u16, std::unique_ptr<offload::Blob>> activations_;
  std::optional<offload::StagingRing> staging_;
  u64 generation_ = 0;
};

}  // namespace spillway::parallel
