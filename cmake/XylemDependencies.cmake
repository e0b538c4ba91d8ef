# SPDX-License-Identifier: Apache-2.0
#
# The libraries that Xylem uses. All of them are installed on the system; nothing is downloaded.
include(XylemCuda)

find_package(Threads REQUIRED)
# UCX's package file fails when it is read twice in one scope. A project around Xylem may have read it already.
if(NOT TARGET ucx::ucp)
  find_package(ucx 1.13 REQUIRED CONFIG)
endif()
find_package(fmt 9 REQUIRED CONFIG)
find_package(hwy 1.0 REQUIRED CONFIG)
find_package(pugixml 1.13 REQUIRED CONFIG)
find_package(nlohmann_json 3.11 REQUIRED CONFIG)

find_package(PkgConfig REQUIRED)
pkg_check_modules(hwloc REQUIRED IMPORTED_TARGET hwloc>=2.9)
pkg_check_modules(sodium REQUIRED IMPORTED_TARGET libsodium>=1.0.18)

# With archives of these libraries, built with -fPIC, libxylem contains them and needs none of them at run time.
# Debian's archives are built without -fPIC, or do not exist.
set(XYLEM_ARCHIVES "" CACHE PATH "Folder of archives to link in place of the system's libraries (tools/wheel makes them)")
if(XYLEM_ARCHIVES)
  foreach(library fmt::fmt hwy::hwy pugixml::shared)
    string(REGEX REPLACE "::.*" "" name ${library})
    get_target_property(configurations ${library} IMPORTED_CONFIGURATIONS)
    foreach(configuration IN LISTS configurations)
      set_target_properties(${library} PROPERTIES
        IMPORTED_LOCATION_${configuration} "${XYLEM_ARCHIVES}/lib${name}.a")
    endforeach()
  endforeach()
  foreach(name hwloc sodium)
    set_target_properties(PkgConfig::${name} PROPERTIES
      INTERFACE_LINK_LIBRARIES "${XYLEM_ARCHIVES}/lib${name}.a;${CMAKE_DL_LIBS};m;Threads::Threads")
  endforeach()
  # A wheel must not refer to symbols of libstdc++ that are newer than manylinux_2_34 allows: base/src/earlier_symbols.cc
  add_link_options(LINKER:--wrap=_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE)
endif()

if(XYLEM_BUILD_TOOLS)
  find_package(CLI11 2.1 REQUIRED CONFIG)
endif()
if(XYLEM_BUILD_BENCH)
  find_package(benchmark 1.7 REQUIRED CONFIG)
endif()
if(XYLEM_BUILD_TESTS)
  find_package(GTest 1.12 REQUIRED CONFIG)
endif()
