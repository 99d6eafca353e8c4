#include "device/shared_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spillway::shared_library_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Names a library that every program with glibc can open.
constexpr const char* kMaths = "libm.so.6";

TEST(SharedLibrary, OpensTheFirstOfItsNamesThatIsThere) {
  const SharedLibrary library({"libspillway_no_such.so.1", "/no/such/folder/libm.so.6", kMaths, "libspillway_never_tried.so"});
  ASSERT_TRUE(library);
  EXPECT_EQ(library.name(), kMaths);
  EXPECT_THAT(library.problems(), ElementsAre(HasSubstr("libspillway_no_such.so.1: "), "/no/such/folder/libm.so.6: file not found"));
  const auto cosine = reinterpret_cast<double (*)(double)>(library.find("cos"));
  ASSERT_NE(cosine, nullptr);
  EXPECT_EQ(cosine(0), 1);
  EXPECT_EQ(library.find("spillway_no_such_function"), nullptr);
}

TEST(SharedLibrary, KeepsWhatTheLoaderSays) {
  const SharedLibrary library({"libspillway_no_such.so.1", SPILLWAY_SOURCE_DIR "/CMakeLists.txt"});
  EXPECT_FALSE(library);
  EXPECT_EQ(library.name(), "");
  EXPECT_THAT(library.problems(), ElementsAre(HasSubstr("cannot open shared object file"), HasSubstr("CMakeLists.txt: ")));
}

TEST(SharedLibrary, Moves) {
  SharedLibrary first({kMaths}), second;
  EXPECT_FALSE(second);
  second = std::move(first);
  EXPECT_TRUE(second);
  const SharedLibrary third(std::move(second));
  EXPECT_EQ(third.name(), kMaths);
  EXPECT_NE(third.find("sin"), nullptr);
}

}  // namespace
}  // namespace spillway::shared_library_test
