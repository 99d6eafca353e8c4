#include "app/run/held_scratch.h"

#include <fmt/format.h>

#include "offload/scratch_path.h"
#include "offload/system_calls.h"

namespace spillway::app {

HeldScratch::HeldScratch(const NvmePaths& nvme, const ScratchId& id, const Options& options)
    : shares_(nvme.shares), recoverable_(options.recoverable) {
  for (const ScratchPath& path : nvme.paths) take_folder(path.path, id, options);
  meter_ = std::make_unique<DiskMeter>(options.system ? *options.system : offload::SystemCalls::real());
  engine_ = offload::make_io_engine(options.engine, offload::kQueueDepth, *meter_);
}

void HeldScratch::take_folder(const std::string& path, const ScratchId& id, const Options& options) {
  const offload::ScratchInfo info = offload::prepare_scratch(path, options.allow_network);
  if (!info.direct) cached_ += fmt::format(", {} through the page cache ({} refuses O_DIRECT)", path, info.filesystem.name);
  if (options.first_here) drop_other_ranks(path, id);
  folders_.emplace_back(path, id.mine());
}

// A dead run of this id that had other ranks has left parts that nobody here holds.
void HeldScratch::drop_other_ranks(const std::string& path, const ScratchId& id) {
  for (const offload::Orphan& o : id.left_behind(path)) {
    if (id.has(o.name)) continue;
    offload::remove_orphan(path, o.name);
    dropped_ += " " + o.name;
  }
}

void HeldScratch::keep() {
  if (!recoverable_) return;
  for (offload::ScratchFolder& folder : folders_) folder.keep();
}

std::vector<offload::StripePath> HeldScratch::stripes() const {
  std::vector<offload::StripePath> stripes;
  for (size_t p = 0; p < folders_.size(); ++p) stripes.push_back({folders_[p].path(), shares_.weights[p]});
  return stripes;
}

std::string HeldScratch::text() const {
  std::string text = "nvme:";
  for (const offload::ScratchFolder& folder : folders_) text += " " + folder.path().string() + ",";
  if (folders_.size() > 1) text += " " + shares_.text() + ",";
  if (!dropped_.empty()) text += " the run had other ranks, what they left is given up (" + dropped_.substr(1) + "),";
  return text + " " + engine_.why + cached_;
}

}  // namespace spillway::app
