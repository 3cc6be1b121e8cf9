# Writes each text file of the list IN as a string `static const char prelude_<name>[]` into the header OUT.
set(text "/* made by tools/embed.cmake */\n")
foreach(file IN LISTS IN)
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(APPEND text "static const char prelude_${name}[] = {${bytes}0};\n")
endforeach()
file(WRITE ${OUT} "${text}")
