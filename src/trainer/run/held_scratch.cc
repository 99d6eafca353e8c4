#include "trainer/run/held_scratch.h"

#include <fmt/format.h>

#include "base/error.h"
#include "offload/scratch_path.h"
#include "offload/system_calls.h"

namespace spillway::trainer {

HeldScratch::HeldScratch(const NvmePaths& nvme, const ScratchId& id, const Options& options)
    : id_(id), paths_(nvme.paths), shares_(nvme.shares), first_here_(options.first_here), recoverable_(options.recoverable) {
  for (const ScratchPath& path : paths_) take_folder(path.path, options);
  meter_ = std::make_unique<DiskMeter>(options.system ? *options.system : offload::SystemCalls::real());
  engine_ = offload::make_io_engine(options.engine, offload::kQueueDepth, *meter_);
}

void HeldScratch::take_folder(const std::string& path, const Options& options) {
  const offload::ScratchInfo info = offload::prepare_scratch(path, options.allow_network);
  if (!info.direct) cached_ += fmt::format(", {} through the page cache ({} refuses O_DIRECT)", path, info.filesystem.name);
  for (const offload::Orphan& o : id_.of_others(path)) others_ += " " + o.name;
  folders_.emplace_back(path, id_.mine());
}

void HeldScratch::keep() {
  for (offload::ScratchFolder& folder : folders_) recoverable_ ? folder.keep() : folder.give_up();
}

void HeldScratch::give_up(bool for_good) {
  for (offload::ScratchFolder& folder : folders_) folder.give_up();
  if (!for_good || !first_here_) return;
  for (const ScratchPath& path : paths_) {
    for (const offload::Orphan& o : id_.of_others(path.path)) try {
        offload::remove_orphan(path.path, o.name);
      } catch (const Error&) {  // the error is ignored: the folder stays, and `spillway doctor` lists it
      }
  }
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
  if (!others_.empty()) text += " older state of this run, in" + others_ + ", is kept until the run's last step,";
  return text + " " + engine_.why + cached_;
}

std::string HeldScratch::lock_notice() const {
  for (const offload::ScratchFolder& folder : folders_) {
    if (const std::string& why = folder.lock().why_not_flock(); !why.empty())
      return fmt::format(
          "{} cannot be locked on this filesystem: {}. A file in the folder names the host and process that use it instead; give --nvme a "
          "local disk",
          folder.path().string(), why);
  }
  return "";
}

}  // namespace spillway::trainer
