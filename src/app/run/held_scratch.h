// What an open session holds on the scratch paths: a folder of its own on each, with the nvme tier's files in it, the engine that moves
// their bytes, and the meter of that. Here alone is decided when such a folder goes. What a dead process left stays, whatever is thrown,
// until give_up(); what was made here goes, unless keep() was called. Owned by the session; one thread.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "app/node/disk_meter.h"
#include "app/plan/nvme_paths.h"
#include "offload/io_engine.h"
#include "offload/nvme_store.h"
#include "offload/scratch_folder.h"

namespace spillway::app {

class HeldScratch {
 public:
  struct Options {
    bool allow_network = false;  // --allow-network-nvme
    offload::IoEngineKind engine = offload::IoEngineKind::automatic;
    bool first_here = true;                  // of the ranks of this node: for all of them it looks after what other ranks left
    bool recoverable = false;                // a restart could go on from what the files hold
    offload::SystemCalls* system = nullptr;  // the engine's; null: the real one
  };
  /// Takes the folders, over from a dead process of this id if there was one. Errors: prepare_scratch's, ScratchFolder's, make_io_engine's.
  HeldScratch(const NvmePaths& nvme, const ScratchId& id, const Options& options);

  /// From now on the files stay where they are, for a restart to find; they go if they would be of no use to it.
  void keep();
  /// Nothing that lies there is needed any more. `for_good`: nor what other ranks of the run left and what was set aside, which go at once.
  void give_up(bool for_good);

  std::vector<offload::StripePath> stripes() const;
  offload::IoEngine& engine() const { return *engine_.engine; }
  /// Since it was made.
  DiskUse use() { return meter_->use(); }
  /// Where the tier lies and what moves its bytes, for the log.
  std::string text() const;
  /// Where a scratch path's filesystem cannot lock: what stands for it, to be said; else empty.
  std::string lock_notice() const;

 private:
  void take_folder(const std::string& path, const Options& options);

  const ScratchId id_;
  const std::vector<ScratchPath> paths_;
  const Shares shares_;
  const bool first_here_;
  const bool recoverable_;
  std::unique_ptr<DiskMeter> meter_;  // outlives the engine
  offload::ChosenEngine engine_;
  std::vector<offload::ScratchFolder> folders_;
  std::string others_, cached_;  // for the log: folders of ranks that are no more; paths without direct I/O
};

}  // namespace spillway::app
