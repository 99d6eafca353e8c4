// Tests folders of images with one sub-folder per class.
#include "data/images/image_folder.h"

#include <set>

#include "data/images/open_images.h"
#include "tests/data/images/support_images.h"

namespace spillway::data::image_folder_test {
namespace {

using test::error_of;
using test::put;

struct ImageFolderTest : testing::Test {
  const test::TemporaryFolder at;
  void image(const std::string& to, const std::string& of) const {
    std::filesystem::create_directories((at / to).parent_path());
    put(at / to, picture_bytes(of));
  }
  std::unique_ptr<ImageSource> open(const ImageWish& wish = {}) const {
    return std::move(open_images({at.path().string()}, Split::training, wish).front());
  }
  static std::pair<i32, u8> class_and_pixel(const ImageSource& source, i64 image) {
    std::vector<u8> pixels(static_cast<size_t>(source.format().shape_CHW.elems()));
    const i32 label = source.read(image, pixels);
    return {label, pixels[5]};
  }
  static void read_all(const ImageSource& source) {
    for (i64 i = 0; i < source.images(); ++i) class_and_pixel(source, i);
  }
  void expect_refused(const std::string& says, const ImageWish& wish = {}) const {
    const std::string got = error_of(ErrorCode::data, [&] { open(wish); });
    EXPECT_NE(got.find(says), std::string::npos) << got;
  }
};

TEST_F(ImageFolderTest, ClassesAndImagesAreInByteOrder) {
  image("b/2.JPG", "rgb.jpg");
  image("b/10.png", "rgb.png");
  image("a/x.jpeg", "grey.jpg");
  image("Z/x.png", "palette.png");
  image("Z/.hidden.png", "rgba.png");
  put(at / "Z/readme.txt", "no image");
  put(at / "list.txt", "no class");
  const auto source = open();
  EXPECT_EQ(source->format().class_names, (std::vector<std::string>{"Z", "a", "b"}));
  EXPECT_EQ(source->format().shape_CHW, (Shape{3, 9, 13})) << "of the first";
  ASSERT_EQ(source->images(), 4);
  std::set<std::pair<i32, u8>> seen;
  for (i64 i = 0; i < 4; ++i) seen.insert(class_and_pixel(*source, i));
  std::vector<u8> grey(3 * 9 * 13);
  fit(netpbm("grey-jpg.pgm"), {3, 9, 13}, grey);
  // returns the red component of the sixth pixel of the picture
  const auto sixth = [](const std::string& name) { return netpbm(name).pixels_HWC[15]; };
  EXPECT_EQ(seen, (std::set<std::pair<i32, u8>>{
                      {0, sixth("palette-png.ppm")}, {1, grey[5]}, {2, sixth("rgb-png.ppm")}, {2, sixth("rgb-jpg.ppm")}}));
  EXPECT_EQ(open({.side = 8})->format().shape_CHW, (Shape{3, 8, 8}));
}

// --validation-fraction takes the last images for validation, and these must be a sample of all classes.
TEST_F(ImageFolderTest, TheLastOnesAreASampleOfAllClasses) {
  for (const char* name : {"a", "b", "c", "d"}) {
    for (int i = 0; i < 20; ++i) image(std::string(name) + "/" + std::to_string(i) + ".png", "grey.png");
  }
  std::vector<int> count(4), again(4);
  for (i64 i = 60; i < 80; ++i) ++count[static_cast<size_t>(class_and_pixel(*open(), i).first)];
  for (const int n : count) EXPECT_GE(n, 2) << "of 20 in 4 classes";
  for (i64 i = 60; i < 80; ++i) ++again[static_cast<size_t>(class_and_pixel(*open(), i).first)];
  EXPECT_EQ(again, count);
}

TEST_F(ImageFolderTest, GreyOnesStayGreyUnlessOneIsNot) {
  image("a/1.png", "grey.png");
  image("b/1.jpg", "grey.jpg");
  EXPECT_EQ(open()->format().shape_CHW, (Shape{1, 7, 10}));
  image("b/2.jpg", "rgb.jpg");
  EXPECT_EQ(open()->format().shape_CHW, (Shape{3, 7, 10}));
  const ImageFormat grey{{1, 5, 5}, 2, {"a", "b"}};
  EXPECT_EQ(open({.format = grey})->format(), grey) << "as the model reads them";
}

TEST_F(ImageFolderTest, WhatIsWrongIsNamed) {
  image("a/1.png", "grey.png");
  std::filesystem::create_directories(at / "empty");
  expect_refused("/empty: expected PNG or JPEG images of the class \"empty\", got none: remove the folder");
  image("empty/inner/1.png", "grey.png");
  expect_refused("got none but folders: did you mean to give " + (at / "empty").string());
  image("empty/1.png", "grey.png");
  expect_refused("index 1 is other there and empty here", {.format = ImageFormat{{1, 7, 7}, 2, {"a", "other"}}});
  put(at / "a/2.webp", "x");
  expect_refused("/a/2.webp: expected a PNG or JPEG image");
  std::filesystem::remove(at / "a/2.webp");
  put(at / "a/2.png", "x");
  expect_refused("/a/2.png: expected a PNG or JPEG image, got a file");
  image("a/0.png", "rgb.png");
  const auto source = open();  // the first image is in colour, so open() need not read the headers of the others
  EXPECT_NE(error_of(ErrorCode::data, [&] { read_all(*source); }).find("/a/2.png: expected a PNG or JPEG image"), std::string::npos);
  put(at / "a/2.png", picture_bytes("rgb.png").substr(0, 300));
  EXPECT_NE(error_of(ErrorCode::data, [&] { read_all(*source); }).find("/a/2.png: expected a PNG image, got damage"), std::string::npos);
  image("\xff/1.png", "grey.png");
  expect_refused("expected class names in UTF-8");
  std::filesystem::remove_all(at / "\xff");
  image("a\nb/1.png", "grey.png");
  expect_refused("without control characters, got \"a\\x0ab\"");
}

}  // namespace
}  // namespace spillway::data::image_folder_test
