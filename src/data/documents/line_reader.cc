#include "data/documents/line_reader.h"

#include <fmt/format.h>
#include <zlib.h>
#include <zstd.h>

#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"

namespace spillway::data {
namespace {

constexpr size_t kPiece = 256 * kKiB;

enum class Packing { none, gzip, zstd };

Packing packing_of(const File& file) {
  std::array<std::byte, 4> first{};
  const auto count = static_cast<size_t>(std::min<i64>(4, file.size_bytes()));
  file.read(0, std::span(first).first(count));
  if (count >= 2 && first[0] == std::byte{0x1f} && first[1] == std::byte{0x8b}) return Packing::gzip;
  constexpr std::array<std::byte, 4> kZstd{std::byte{0x28}, std::byte{0xb5}, std::byte{0x2f}, std::byte{0xfd}};
  return count == 4 && first == kZstd ? Packing::zstd : Packing::none;
}

}  // namespace

// Decompresses a file piece by piece. If the file consists of several compressed streams, their contents are read as one text, as gzip and
// zstd themselves do.
class LineReader::Unpacker {
 public:
  explicit Unpacker(const std::filesystem::path& path) : file_(File::open(path)), packing_(packing_of(file_)) {
    if (packing_ == Packing::gzip) {
      require(inflateInit2(&gzip_, 15 + 16) == Z_OK, "[data] zlib cannot be initialized");
    } else if (packing_ == Packing::zstd) {
      zstd_ = ZSTD_createDStream();
      require(zstd_ != nullptr, "[data] zstd cannot be initialized");
    }
  }
  ~Unpacker() {
    if (packing_ == Packing::gzip) inflateEnd(&gzip_);
    ZSTD_freeDStream(zstd_);
  }
  Unpacker(const Unpacker&) = delete;
  Unpacker& operator=(const Unpacker&) = delete;

  const File& file() const { return file_; }
  i64 bytes_read() const { return offset_; }

  // Appends some more decompressed text to `to`. Returns false at the end of the file. Errors name `line`, the number of the last line that
  // was read.
  bool append(std::string& to, i64 line) {
    if (packing_ == Packing::none) {
      const std::span<const std::byte> piece = read();
      to.append(reinterpret_cast<const char*>(piece.data()), piece.size());
      return !piece.empty();
    }
    for (;;) {
      if (input_.empty()) {
        input_ = read();
        if (input_.empty()) {
          if (inside_) damaged(line, "the file is cut short");
          return false;
        }
      }
      const size_t before = to.size();
      to.resize(before + kPiece);
      const size_t made = packing_ == Packing::gzip ? inflate_some(to.data() + before, line) : unzstd_some(to.data() + before, line);
      to.resize(before + made);
      if (made > 0) return true;
    }
  }

 private:
  std::span<const std::byte> read() {
    const auto count = static_cast<size_t>(std::min<i64>(static_cast<i64>(kPiece), file_.size_bytes() - offset_));
    piece_.resize(count);
    file_.read(offset_, piece_);
    offset_ += static_cast<i64>(count);
    return piece_;
  }

  size_t inflate_some(char* to, i64 line) {
    if (!inside_) require(inflateReset(&gzip_) == Z_OK, "[data] zlib cannot be reset");
    inside_ = true;
    gzip_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(input_.data()));
    gzip_.avail_in = static_cast<uInt>(input_.size());
    gzip_.next_out = reinterpret_cast<Bytef*>(to);
    gzip_.avail_out = static_cast<uInt>(kPiece);
    const int status = inflate(&gzip_, Z_NO_FLUSH);
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) damaged(line, gzip_.msg ? gzip_.msg : "the data is not gzip");
    input_ = input_.last(gzip_.avail_in);
    if (status == Z_STREAM_END) inside_ = false;
    return kPiece - gzip_.avail_out;
  }

  size_t unzstd_some(char* to, i64 line) {
    ZSTD_inBuffer in{input_.data(), input_.size(), 0};
    ZSTD_outBuffer out{to, kPiece, 0};
    const size_t status = ZSTD_decompressStream(zstd_, &out, &in);
    if (ZSTD_isError(status)) damaged(line, ZSTD_getErrorName(status));
    inside_ = status != 0;
    input_ = input_.subspan(in.pos);
    return out.pos;
  }

  [[noreturn]] void damaged(i64 line, const std::string& why) const {
    throw Error(ErrorCode::data, fmt::format("[data] {}, after line {}: expected {} data, got damage: {}", file_.path().string(), line,
                                             packing_ == Packing::gzip ? "gzip" : "zstd", why));
  }

  const File file_;
  const Packing packing_;
  std::vector<std::byte> piece_;
  std::span<const std::byte> input_;  // the compressed bytes in piece_ that are still to be decompressed
  i64 offset_ = 0;
  bool inside_ = false;  // true between the beginning and the end of a compressed stream
  z_stream gzip_{};
  ZSTD_DStream* zstd_ = nullptr;
};

LineReader::LineReader(const std::filesystem::path& path, i64 most_line_bytes)
    : unpacker_(std::make_unique<Unpacker>(path)), most_line_bytes_(most_line_bytes) {}
LineReader::~LineReader() = default;

i64 LineReader::bytes_read() const { return unpacker_->bytes_read(); }
i64 LineReader::file_bytes() const { return unpacker_->file().size_bytes(); }

bool LineReader::next(std::string& line) {
  size_t looked = at_;
  for (;;) {
    const size_t end = buffer_.find('\n', looked);
    if (end != std::string::npos) {
      line.assign(buffer_, at_, end - at_);
      at_ = end + 1;
      ++number_;
      ended_with_line_end_ = true;
      return true;
    }
    looked = buffer_.size() - at_;
    buffer_.erase(0, at_);
    at_ = 0;
    if (static_cast<i64>(buffer_.size()) > most_line_bytes_) {
      throw Error(ErrorCode::data, fmt::format("[data] {}, line {}: expected a line of at most {} MiB, got a longer one: is the file JSON "
                                               "Lines? Split rows that are this long",
                                               unpacker_->file().path().string(), number_ + 1, most_line_bytes_ / kMiB));
    }
    if (!at_end_ && !unpacker_->append(buffer_, number_)) at_end_ = true;
    if (!at_end_) continue;
    if (buffer_.empty()) return false;
    line = std::exchange(buffer_, {});
    ended_with_line_end_ = false;
    ++number_;
    return true;
  }
}

}  // namespace spillway::data
