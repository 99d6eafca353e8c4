#include "data/tokens/token_file.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <system_error>

#include "base/error.h"
#include "data/tokens/token_format.h"

namespace spillway::data {
namespace {

constexpr size_t kPendingBytes = 65536;

// Throws if `path` is an existing file that is not a token file, because its name was probably given by mistake. Returns `path` otherwise.
const std::filesystem::path& only_token_file(const std::filesystem::path& path) {
  std::error_code unseen;
  if (std::filesystem::exists(path, unseen) && !begins_as_token_file(File::open(path))) {
    throw Error(ErrorCode::usage,
                fmt::format("[token file] expected a new file, or a token file to replace, got {}, which is neither: give another name",
                            path.string()));
  }
  return path;
}

}  // namespace

TokenFileWriter::TokenFileWriter(const std::filesystem::path& path, i64 vocabulary)
    : file_(only_token_file(path), Existing::replace),
      vocabulary_(vocabulary),
      width_bytes_(vocabulary <= 65536 ? 2 : 4),
      flushed_bytes_(kLlmcHeaderBytes) {
  pending_.reserve(kPendingBytes);
}

void TokenFileWriter::write(std::span<const i32> ids) {
  for (const i32 id : ids) {
    if (id < 0 || id >= vocabulary_) {
      throw Error(ErrorCode::data, fmt::format("[token file] {}: expected ids from 0 to {}, got {} at token {}",
                                               file_.final_path().string(), vocabulary_ - 1, id, tokens_));
    }
    for (int i = 0; i < width_bytes_; ++i) pending_.push_back(static_cast<std::byte>(id >> (8 * i)));
    ++tokens_;
    if (pending_.size() == kPendingBytes) flush();
  }
}

void TokenFileWriter::flush() {
  file_.file().write(flushed_bytes_, pending_);
  flushed_bytes_ += static_cast<i64>(pending_.size());
  pending_.clear();
}

void TokenFileWriter::finish() {
  flush();
  std::array<u32, kLlmcHeaderBytes / 4> header{};
  header[0] = width_bytes_ == 2 ? kLlmcMagic16 : kLlmcMagic32;
  header[1] = width_bytes_ == 2 ? kLlmcVersion16 : kLlmcVersion32;
  header[2] = static_cast<u32>(tokens_);
  header[3] = static_cast<u32>(static_cast<u64>(tokens_) >> 32);
  file_.file().write(0, std::as_bytes(std::span(header)));
  file_.commit();
}

}  // namespace spillway::data
