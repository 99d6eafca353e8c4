// The checksums of a folder's files, in its manifest.json: a checkpoint. The manifest is an object that says more than that; it carries its
// own checksum, over the text as it is with "manifest_crc32c" as eight zeros.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/checked_file.h"

namespace spillway::data {

class FolderChecksums {
 public:
  /// What `folder`'s manifest says; of a folder without one, or whose manifest has no checksums, nothing is known. Damaged: the manifest is
  /// not what was written. Error(data): unreadable.
  static FolderChecksums of(const std::filesystem::path& folder);

  bool any() const { return !files_.empty(); }
  /// By its name, with the folder before it where it lies in one ("additional_chat_templates/rag.jinja"); none: nothing is known of it.
  std::optional<FileChecksums> find(const std::string& file) const;
  const std::map<std::string, FileChecksums>& files() const { return files_; }

  void add(const std::string& file, FileChecksums checksums) { files_.insert_or_assign(file, std::move(checksums)); }
  /// The text of manifest.json: the members of `object`, a JSON object's text, with these checksums and the manifest's own.
  std::string seal(const std::string& object) const;

 private:
  std::map<std::string, FileChecksums> files_;
};

constexpr const char* kManifestName = "manifest.json";

/// The contents of a small file of the folder (16 MiB at most), checked. Throws Damaged, Error(data).
std::string read_checked_text(const FolderChecksums& checksums, const std::filesystem::path& path);

/// Reads every file of the folder that it has checksums of, to the end. What is damaged or missing, in words, one entry for each stretch of
/// a file; empty: all is as it was saved. Damaged, Error(data): the manifest itself.
std::vector<std::string> damage_of(const std::filesystem::path& folder);

}  // namespace spillway::data
