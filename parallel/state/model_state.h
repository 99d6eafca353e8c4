// The weights, gradient accumulators and optimizer state of a model at rest: a blob for each group and kind in its tier; what lies on nvme
// lies in one store, with checksums and generations that outlive the process. Whatever leaves memory goes through stamp and verify here.
// Thread-safety: as Blob; publish(), scan(), fill() and commit() while no step's lanes run, commit() on the optimizer lane too.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "device/memory_pool.h"
#include "offload/nvme_store.h"
#include "offload/staging_ring.h"
#include "parallel/comm/communicator.h"
#include "parallel/plan/plan.h"

namespace spillway::parallel {

class RankExchange;

/// What a rank's memory comes from, and whom it talks to. From engine to durability needed only when the plan uses nvme; the folders belong
/// to this run and rank alone.
struct Resources {
  MemoryPool* device = nullptr;
  MemoryPool* host = nullptr;
  ThreadPool* threads = nullptr;
  offload::IoEngine* engine = nullptr;
  std::vector<offload::StripePath> scratch;
  std::string run_id;
  offload::Durability durability = offload::Durability::checkpoint;
  Communicator* data_ranks = nullptr;      // among the data-parallel ranks; null: there is one
  Communicator* pipeline_ranks = nullptr;  // among the pipeline ranks; null: there is one
  u64 newest_generation = ~u64{0};         // to be recovered from nvme
  bool new_store = false;                  // nothing is: what is there is set aside
  int gpu = 0;                             // whose memory `device` is, where a GPU computes
  Tf32 tf32;                               // likewise
  RankExchange* gpu_exchange = nullptr;    // likewise: over which GPUs talk to each other, where the plan has them do so
};

class ModelState {
 public:
  /// Allocates everything that rests, or finds on nvme what a dead run of this id left (recovered()). What is new is undefined until
  /// fill(). Errors: Error(refused) over a budget or without disk space; Error(data) for a store of a newer program.
  ModelState(const Plan& plan, const Resources& resources);

  /// The record of the last commit of a dead run, when all weights and state lie on nvme and are there: nothing needs to be loaded.
  const std::optional<std::string>& recovered() const { return recovered_; }
  /// Why not; empty when recovered or when nothing lies on nvme.
  std::string why_not_recovered() const;
  /// NvmeStore::moved().
  std::string store_moved() const { return store_ ? store_->moved() : ""; }
  /// Reads all that was recovered: what is not as it was written, in words, and empty when it is all there. Damaged, it is no longer what a
  /// restart finds. Errors: Error(io) for bytes that do not come.
  std::string damage_of_recovered();
  /// The recovered state is not wanted: fill() may write.
  void forget_recovered();

  offload::Blob& weights(u16 group) { return *weights_[group]; }
  /// Of a use that rests.
  offload::Blob& gradients(u16 group, u8 use) { return *gradients_.at({group, use}); }
  /// Null of a group without a state (Plan::has_state).
  offload::Blob* optimizer(u16 group) { return optimizer_[group].get(); }
  /// On nvme: one tile a live micro-batch.
  offload::Blob& activations(u16 block) { return *activations_.at(block); }

  /// Readers see this generation; a step writes the next. Where a blob has one slot they are the same bytes.
  u64 generation() const { return generation_; }
  void publish() { ++generation_; }

  /// As Blob's, whole ranges: waits, and checks what was read. They return the microseconds the bytes were under way.
  double read(offload::Blob& blob, TileRange range, std::span<std::byte> into);
  double write(offload::Blob& blob, TileRange range, std::span<const std::byte> from);
  /// Of what was read into `bytes`. What is not as it was written is read once more, into the same place, before it counts as spoilt; a
  /// restart then goes on from the checkpoint if it was of what was committed, which nothing else touches: an I/O error does not either.
  void verify(offload::Blob& blob, TileRange range, u64 generation, std::span<std::byte> bytes);
  /// Of verify() since the last call: what was right only when read again, and how often; empty mostly.
  std::string take_rereads();

  /// Every tile of `generation` has landed: a restart finds it with `record`. Nothing to do unless all of it lies on nvme.
  void commit(u64 generation, std::string_view record);

  /// All tiles of a group that are held here, in order, a few at a time: weight tiles and, where their state is held too, state tiles (else
  /// empty). Seen in place, or
  /// through the staging ring. fill() hands out memory to be written whole. For setting up, checkpoints and tests.
  using Scan = std::function<void(TileRange, std::span<const std::byte> weights, std::span<const std::byte> state)>;
  using Fill = std::function<void(TileRange, std::span<std::byte> weights, std::span<std::byte> state)>;
  void scan(u16 group, const Scan& body);
  /// These ranges alone, none longer than a staging buffer where one is needed, of a generation that is still there.
  void scan(u16 group, std::span<const TileRange> ranges, u64 generation, const Scan& body);
  /// Of these tiles the weights alone.
  void scan_weights(u16 group, TileRange tiles, const Scan& body);
  void fill(u16 group, const Fill& body);

  /// Null where the CPU computes.
  const offload::GpuCopyQueues* queues() const { return queues_ ? &*queues_ : nullptr; }
  /// Plan::whole_bytes and whole_gpu_bytes, for the optimizer lane.
  std::byte* whole() const { return whole_.data(); }
  std::byte* whole_on_gpu() const { return whole_on_gpu_.data(); }
  offload::StagingRing* staging() { return staging_ ? &*staging_ : nullptr; }
  offload::Traffic& traffic() { return traffic_; }
  /// Size of the store's files; 0 when nothing lies on nvme.
  i64 nvme_bytes() const { return store_ ? store_->bytes() : 0; }

 private:
  struct Piece;
  void open_store();
  void make_gradients();
  void make_activations();
  std::unique_ptr<offload::Blob> make(Tier tier, const std::string& what, TileRange tiles, i64 tile_bytes, int slots, bool persistent);
  std::vector<TileRange> chunks(u16 group) const;
  std::vector<TileRange> pieces(TileRange tiles, bool staged) const;
  bool holds_state(u16 group, TileRange range) const;
  enum class Kinds : u8 { all, weights };
  Piece open(u16 group, TileRange range, u64 generation, Kinds kinds);
  void scan(u16 group, std::span<const TileRange> ranges, u64 generation, Kinds kinds, const Scan& body);

  const Plan& plan_;
  const Resources resources_;
  std::optional<offload::GpuCopyQueues> queues_;
  offload::Traffic traffic_;
  std::optional<offload::NvmeStore> store_;
  std::mutex store_mutex_;  // of commit, invalidate and rereads
  i64 rereads_ = 0;
  std::string last_reread_;
  std::optional<std::string> recovered_;
  std::vector<std::unique_ptr<offload::Blob>> weights_, optimizer_;
  std::map<std::pair<u16, u8>, std::unique_ptr<offload::Blob>> gradients_;
  std::map<u16, std::unique_ptr<offload::Blob>> activations_;
  std::optional<offload::StagingRing> staging_;
  Allocation whole_, whole_on_gpu_;
  u64 generation_ = 0;
};

}  // namespace spillway::parallel
