// SPDX-License-Identifier: Apache-2.0
#include "fakes/cuda_driver/ipc.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

namespace xylem::fake_cuda {
namespace {

std::uint64_t inode_of(int file) {
  struct stat status = {};
  return fstat(file, &status) == 0 ? status.st_ino : 0;
}

}  // namespace

IpcKey key_of(int file) {
  IpcKey key;
  key.pid = getpid();
  key.file = file;
  key.inode = inode_of(file);
  return key;
}

int open_file(const IpcKey& key) {
  const std::string path = "/proc/" + std::to_string(key.pid) + "/fd/" + std::to_string(key.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0 || inode_of(file) == key.inode) return file;
  close(file);
  return -1;
}

}  // namespace xylem::fake_cuda
