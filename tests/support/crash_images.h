// Enumerates what a crash may leave of files whose I/O was recorded. An Image holds the files' bytes. An ImageEngine does the I/O of files
// with the same paths and sizes on an image, so that tens of thousands of crashes can be recovered from in seconds. Writes are torn at page
// boundaries.
#pragma once
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <list>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "offload/store_format.h"
#include "tests/support/recording_engine.h"

namespace spillway::test {

constexpr i64 kTearBytes = 4096;

using Image = std::map<std::string, std::vector<std::byte>>;

/// Returns the earlier path of a file or folder that may have been set aside since (offload/store_aside.h).
inline std::string before_aside(std::string path) {
  const size_t at = path.find(".aside-");
  return at == std::string::npos ? path : path.erase(at, 7 + 16);
}

class ImageEngine final : public offload::IoEngine {
 public:
  explicit ImageEngine(Image image) : image_(std::move(image)) {}
  std::string_view name() const override { return "image"; }
  Event submit(const offload::IoRequest& r) override {
    std::vector<std::byte>& file = image_.at(before_aside(r.file->path().string()));
    require(r.offset >= 0 && r.offset + r.bytes <= std::ssize(file), "[image] a range outside the file");
    std::byte* at = file.data() + r.offset;
    if (r.bytes > 0)
      r.write ? std::memcpy(at, r.buffer, static_cast<size_t>(r.bytes)) : std::memcpy(r.buffer, at, static_cast<size_t>(r.bytes));
    return Event::done();
  }
  void flush(const offload::ScratchFile&) override {}

 private:
  Image image_;
};

/// Writes an image to its files, so that code without an I/O engine can read them.
inline void restore(const Image& image) {
  for (const auto& [path, bytes] : image) {
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
    if (!out.flush()) throw std::runtime_error("cannot write " + path);
    std::filesystem::permissions(path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  }
}

/// Moves files in the folders of `scratch` back to their places if recovery from an image has set them aside. The next image needs them
/// in place.
inline void undo_setting_aside(const std::filesystem::path& scratch) {
  std::vector<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::directory_iterator(scratch)) folders.push_back(entry.path());
  for (const std::filesystem::path& folder : folders) {
    const std::filesystem::path before = before_aside(folder.string());
    if (before == folder) continue;
    if (std::filesystem::exists(folder / offload::kStoreFile))
      std::filesystem::rename(folder / offload::kStoreFile, before / offload::kStoreFile);
    std::filesystem::remove_all(folder);
  }
}

/// Walks a log and calls `visit(image, entries)` for each image that a crash after the first `entries` entries may leave.
class CrashImages {
 public:
  using Visit = std::function<void(const Image&, size_t entries)>;

  CrashImages(const IoLog& log, u32 seed, Visit visit) : log_(log), random_(seed), visit_(std::move(visit)) {
    for (const auto& [file, bytes] : log.file_bytes) safe_[file].resize(static_cast<size_t>(bytes));
  }

  /// Simulates that the process dies, after which completed writes stay. Of the writes in flight all stay, or none stay, or, `samples`
  /// times, each is at random complete, torn or absent. The newest write is also cut at every page.
  void process_deaths(int samples) {
    walk([](const IoLog::Entry& e) { return e.kind == IoLog::Kind::completed; }, samples);
  }

  /// Simulates power losses: writes that were flushed after their completion stay, and any part of the others may be lost.
  void power_losses(int samples) {
    walk([](const IoLog::Entry& e) { return e.kind == IoLog::Kind::flushed; }, samples);
  }

  i64 count() const { return count_; }

 private:
  // `makes_safe` tells after which log entries a write can no longer be lost.
  void walk(const std::function<bool(const IoLog::Entry&)>& makes_safe, int samples) {
    for (size_t i = 0; i < log_.entries.size(); ++i) {
      const IoLog::Entry& entry = log_.entries[i];
      if (entry.kind == IoLog::Kind::submitted) unsafe_.push_back(entry.write);
      if (entry.kind == IoLog::Kind::completed) completed_.push_back(entry.write);
      if (makes_safe(entry)) settle(entry);
      if (entry.kind != IoLog::Kind::mark) visit_some(i + 1, samples);
    }
  }

  // Moves the writes that this entry makes safe into the safe image, in the order of their completion.
  void settle(const IoLog::Entry& entry) {
    std::erase_if(completed_, [&](size_t write) {
      if (entry.kind == IoLog::Kind::completed ? write != entry.write : log_.writes[write].file != entry.file) return false;
      apply(safe_, write, [](i64) { return true; });
      std::erase(unsafe_, write);
      return true;
    });
  }

  void visit_some(size_t entries, int samples) {
    emit(entries, [](size_t) { return Fate::absent; });
    if (unsafe_.empty()) return;
    emit(entries, [](size_t) { return Fate::whole; });
    for (int s = 0; s < samples; ++s) emit(entries, [&](size_t) { return static_cast<Fate>(random_() % 3); });
    cut_newest(entries);
  }

  void cut_newest(size_t entries) {
    const size_t newest = unsafe_.back();
    for (i64 cut = kTearBytes; cut < std::ssize(log_.writes[newest].bytes); cut += kTearBytes) {
      Image image = safe_;
      for (const size_t write : unsafe_) {
        if (write != newest && random_() % 2 == 0) apply(image, write, [](i64) { return true; });
      }
      apply(image, newest, [&](i64 at) { return at < cut; });
      ++count_;
      visit_(image, entries);
    }
  }

  enum class Fate { absent, whole, torn };
  void emit(size_t entries, const std::function<Fate(size_t)>& fate_of) {
    Image image = safe_;
    for (const size_t write : unsafe_) {
      const Fate fate = fate_of(write);
      if (fate == Fate::whole) apply(image, write, [](i64) { return true; });
      if (fate == Fate::torn) apply(image, write, [&](i64) { return random_() % 2 == 0; });
    }
    ++count_;
    visit_(image, entries);
  }

  void apply(Image& image, size_t write, const std::function<bool(i64)>& page_arrives) {
    const IoLog::Write& w = log_.writes[write];
    std::vector<std::byte>& file = image.at(w.file);
    for (i64 at = 0; at < std::ssize(w.bytes); at += kTearBytes) {
      const i64 bytes = std::min(kTearBytes, std::ssize(w.bytes) - at);
      if (page_arrives(at)) std::memcpy(file.data() + w.offset + at, w.bytes.data() + at, static_cast<size_t>(bytes));
    }
  }

  const IoLog& log_;
  std::mt19937 random_;
  const Visit visit_;
  Image safe_;
  std::vector<size_t> unsafe_;     // writes that are submitted and not yet safe, in the order of submission
  std::vector<size_t> completed_;  // the unsafe writes that have completed, in the order of completion
  i64 count_ = 0;
};

}  // namespace spillway::test
