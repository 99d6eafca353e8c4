#include "data/images/gunzip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>

#include "base/error.h"

namespace spillway::data {

struct Gunzip::State {
  z_stream stream{};
  std::array<u8, 64 * kKiB> piece;
  i64 offset = 0;
  bool at_end = false;
};

Gunzip::Gunzip(const File& file) : file_(file), state_(std::make_unique<State>()) {
  require(inflateInit2(&state_->stream, 15 + 16) == Z_OK, "[data] zlib cannot be initialized");
}

Gunzip::~Gunzip() { inflateEnd(&state_->stream); }

// Decompresses up to into.size() bytes and returns their number. The number is 0 only at the end of the data.
size_t Gunzip::some(std::span<u8> into) {
  z_stream& z = state_->stream;
  const auto most = static_cast<uInt>(std::min<size_t>(into.size(), size_t{1} << 30));
  z.next_out = into.data();
  z.avail_out = most;
  while (z.avail_out == most && !state_->at_end) {
    if (z.avail_in == 0) {
      const auto count = static_cast<size_t>(std::min<i64>(std::ssize(state_->piece), file_.size_bytes() - state_->offset));
      if (count == 0)
        throw Error(ErrorCode::data,
                    fmt::format("[data] {}: expected gzip data, got damage: the file is cut short", file_.path().string()));
      file_.read(state_->offset, std::as_writable_bytes(std::span(state_->piece)).first(count));
      state_->offset += static_cast<i64>(count);
      z.next_in = state_->piece.data();
      z.avail_in = static_cast<uInt>(count);
    }
    const int status = inflate(&z, Z_NO_FLUSH);
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
      throw Error(ErrorCode::data, fmt::format("[data] {}: expected gzip data, got damage: {}", file_.path().string(),
                                               z.msg ? z.msg : "the data is not gzip"));
    state_->at_end = status == Z_STREAM_END;
  }
  return most - z.avail_out;
}

void Gunzip::read(std::span<u8> into) {
  while (!into.empty()) {
    const size_t made = some(into);
    if (made == 0)
      throw Error(ErrorCode::data, fmt::format("[data] {}: expected {} more bytes of unpacked data, got the end of the file",
                                               file_.path().string(), into.size()));
    into = into.subspan(made);
  }
}

void Gunzip::finish() {
  std::array<u8, 1> more;
  if (some(more) != 0)
    throw Error(ErrorCode::data,
                fmt::format("[data] {}: expected no more unpacked bytes than the header says, got more", file_.path().string()));
}

}  // namespace spillway::data
