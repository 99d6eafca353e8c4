// Tests the errors of failed file system calls: the message names the path, and the error never counts as a bug of the program.
#include "base/path_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temporary_folder.h"

namespace spillway::path_error_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

template <class Act>
Error told(Act act) {
  try {
    act();
  } catch (const fs::filesystem_error& error) {
    return error_of(error);
  }
  ADD_FAILURE() << "nothing was thrown";
  return {ErrorCode::bug, ""};
}

TEST(PathError, SaysWhatIsWrongWithThePath) {
  const test::TemporaryFolder folder;
  const Error longer = told([&] { (void)fs::exists(folder / std::string(300, 'n')); });
  EXPECT_EQ(longer.code(), ErrorCode::data);
  EXPECT_THAT(longer.what(), testing::AllOf(HasSubstr("nnnn"), HasSubstr("255 bytes")));

  fs::create_symlink(folder / "a", folder / "b");
  fs::create_symlink(folder / "b", folder / "a");
  const Error circle = told([&] { (void)fs::exists(folder / "a"); });
  EXPECT_EQ(circle.code(), ErrorCode::data);
  EXPECT_THAT(circle.what(), HasSubstr("form a cycle"));

  std::ofstream(folder / "file") << "x";
  const Error missing = told([&] { (void)fs::file_size(folder / "missing"); });
  EXPECT_EQ(missing.code(), ErrorCode::data);
  EXPECT_THAT(missing.what(), testing::AllOf(HasSubstr((folder / "missing").string()), HasSubstr("errno 2")));
  const Error within = told([&] { (void)fs::file_size(folder / "file" / "x"); });
  EXPECT_EQ(within.code(), ErrorCode::data);
  EXPECT_THAT(within.what(), HasSubstr("is a file, but a folder is expected"));
}

TEST(PathError, PermissionsAreTheUsersAndADriveThatFailsIsNot) {
  const fs::filesystem_error denied("x", "/private/model", std::make_error_code(std::errc::permission_denied));
  EXPECT_EQ(error_of(denied).code(), ErrorCode::data);
  EXPECT_THAT(error_of(denied).what(), testing::AllOf(HasSubstr("/private/model"), HasSubstr("permissions of the folders")));
  EXPECT_EQ(error_of(fs::filesystem_error("x", "/d", std::make_error_code(std::errc::io_error))).code(), ErrorCode::io);
  EXPECT_EQ(error_of(fs::filesystem_error("x", "/d", std::make_error_code(std::errc::no_space_on_device))).code(), ErrorCode::io);
}

}  // namespace
}  // namespace spillway::path_error_test
