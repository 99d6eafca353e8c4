#include "data/images/idx.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "data/files/file.h"
#include "data/images/gunzip.h"
#include "data/images/picture.h"

namespace spillway::data {
namespace {

namespace fs = std::filesystem;

constexpr const char *kImages = "-images-idx3-ubyte", *kLabels = "-labels-idx1-ubyte";

// One IDX file: the extents that its header gives, and the data bytes that follow the header.
class IdxFile {
 public:
  IdxFile(const fs::path& path, size_t dimensions) : file_(File::open(path)), header_bytes_(4 + 4 * static_cast<i64>(dimensions)) {
    const bool packed = path.extension() == ".gz";
    std::optional<Gunzip> unpacking;
    if (packed) unpacking.emplace(file_);
    std::vector<u8> header(static_cast<size_t>(header_bytes_));
    if (packed) {
      unpacking->read(header);
    } else if (file_.size_bytes() < header_bytes_) {
      complain(fmt::format("an IDX header of {} bytes", header_bytes_), fmt::format("a file of {} bytes", file_.size_bytes()));
    } else {
      file_.read(0, std::as_writable_bytes(std::span(header)));
    }
    check(header, dimensions, packed ? std::nullopt : std::optional(file_.size_bytes()));
    if (!packed) return;
    if (body_bytes_ / kMostUnpacked > file_.size_bytes())
      complain(fmt::format("{} bytes, as the header says", body_bytes_),
               fmt::format("a .gz of {} bytes, which cannot hold them", file_.size_bytes()));
    unpacked_.resize(static_cast<size_t>(body_bytes_));
    unpacking->read(unpacked_);
    unpacking->finish();
  }

  i64 extent(size_t dimension) const { return extents_[dimension]; }
  const fs::path& path() const { return file_.path(); }

  void read(i64 offset, std::span<u8> into) const {
    if (unpacked_.empty()) return file_.read(header_bytes_ + offset, std::as_writable_bytes(into));
    std::copy_n(unpacked_.begin() + offset, into.size(), into.begin());
  }

 private:
  void check(std::span<const u8> header, size_t dimensions, std::optional<i64> file_bytes) {
    const auto word = [&](size_t i) {
      return i64{header[4 * i]} << 24 | header[4 * i + 1] << 16 | header[4 * i + 2] << 8 | header[4 * i + 3];
    };
    const i64 magic = 0x800 + static_cast<i64>(dimensions);
    if (word(0) != magic) complain(fmt::format("an IDX file that begins with {:#010x}", magic), fmt::format("{:#010x}", word(0)));
    body_bytes_ = 1;
    for (size_t d = 0; d < dimensions; ++d) {
      const i64 extent = word(d + 1), most = d == 0 ? kMostImages : kMostSide;
      if (extent < 1 || extent > most)
        complain(fmt::format("from 1 to {} {}", most, d == 0 ? "images" : "rows and columns"),
                 fmt::format("{} (byte {})", extent, 4 * (d + 1)));
      extents_[d] = extent;
      body_bytes_ *= extent;  // the product is at most 2^32 * 2^28, so it does not overflow
    }
    if (file_bytes && *file_bytes != header_bytes_ + body_bytes_)
      complain(fmt::format("{} bytes, as the header says", header_bytes_ + body_bytes_),
               fmt::format("{}: the file is cut short, or has other data at its end", *file_bytes));
  }

  [[noreturn]] void complain(const std::string& expected, const std::string& got) const {
    throw Error(ErrorCode::data, fmt::format("[data] {}: expected {}, got {}", path().string(), expected, got));
  }

  static constexpr i64 kMostImages = 0xffffffff;
  File file_;
  i64 header_bytes_, body_bytes_ = 0;
  std::array<i64, 3> extents_{};
  std::vector<u8> unpacked_;  // the decompressed contents if the file is a .gz; otherwise empty
};

class Idx final : public ImageSource {
 public:
  Idx(const fs::path& images, const fs::path& labels) : name_(images.string()), images_(images, 3) {
    const IdxFile file(labels, 1);
    if (file.extent(0) != images_.extent(0)) {
      throw Error(ErrorCode::data, fmt::format("[data] {}: expected {} labels, one for each image of {}, got {}", labels.string(),
                                               images_.extent(0), images.string(), file.extent(0)));
    }
    labels_.resize(static_cast<size_t>(file.extent(0)));
    file.read(0, labels_);
    format_ = {{1, images_.extent(1), images_.extent(2)}, *std::ranges::max_element(labels_) + i64{1}, {}};
  }

  const std::string& name() const override { return name_; }
  i64 images() const override { return images_.extent(0); }
  const ImageFormat& format() const override { return format_; }

  i32 read(i64 image, std::span<u8> pixels_CHW) const override {
    require(image >= 0 && image < images() && std::ssize(pixels_CHW) == format_.shape_CHW.elems(),
            "[data] expected the index of an image and room for its pixels");
    images_.read(image * format_.shape_CHW.elems(), pixels_CHW);
    return labels_[static_cast<size_t>(image)];
  }

 private:
  std::string name_;
  IdxFile images_;
  std::vector<u8> labels_;
  ImageFormat format_;
};

}  // namespace

bool is_idx_images(const fs::path& file) {
  const std::string name = (file.extension() == ".gz" ? file.stem() : file.filename()).string();
  return name.ends_with(kImages);
}

std::optional<fs::path> idx_images_in(const fs::path& folder, Split split) {
  const std::string name = std::string(split == Split::training ? "train" : "t10k") + kImages;
  for (const std::string& file : {name, name + ".gz"}) {
    if (fs::exists(folder / file)) return folder / file;
  }
  return {};
}

std::unique_ptr<ImageSource> open_idx(const fs::path& images) {
  std::string name = images.filename().string();
  name = name.substr(0, name.rfind(kImages)) + kLabels;
  for (const std::string& file : {name, name + ".gz"}) {
    if (fs::exists(images.parent_path() / file)) return std::make_unique<Idx>(images, images.parent_path() / file);
  }
  throw Error(ErrorCode::data, fmt::format("[data] expected {} or {}.gz beside {}, found none", name, name, images.string()));
}

}  // namespace spillway::data
