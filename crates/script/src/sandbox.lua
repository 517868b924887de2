-- What scripts find in the interpreter, and how it is kept from them.
--
-- Called once with the interpreter's own globals and the functions of the host. Everything that a script can reach is
-- behind an empty table with a metatable that reads from the real one and refuses writes. The functions that would see
-- through that, or that would see errors of the host as they are, are replaced.
local real, host = ...

local error, getmetatable, next, rawget, rawset = error, getmetatable, next, rawget, rawset
local setmetatable, tostring, type = setmetatable, tostring, type
local xpcall = xpcall
local collectgarbage, resume = collectgarbage, coroutine.resume
local plain = host.plain

local READONLY = "Attempt to modify a readonly table"
-- Tables behind stand-ins, and what these have for a metatable: false for none.
local behind, metatables = {}, {}

local function refuse()
  error(READONLY, 2)
end

local function front(t)
  local proxy, meta = {}, { __index = t, __newindex = refuse }
  behind[proxy] = t
  metatables[proxy] = false
  return setmetatable(proxy, meta), meta
end

local sealed, sealed_meta = front({})
sealed_meta.__metatable = sealed

local function seal(t)
  local proxy, meta = front(t)
  meta.__metatable = sealed
  return proxy, meta
end

local function missing(_, name)
  error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
end

local globals = {}
for _, name in ipairs({
  "assert", "error", "gcinfo", "ipairs", "rawequal", "select", "tonumber", "tostring", "type",
  "unpack", "_VERSION",
}) do
  globals[name] = real[name]
end

-- These complain in the words of Lua's own library, and see through stand-ins.
local make = host.make
globals.next = make.next(next, behind)
globals.pairs = make.pairs(next, behind, globals.next)
globals.rawget = make.rawget(rawget, behind)
globals.rawset = make.rawset(rawset, behind)
globals.getmetatable = make.getmetatable(getmetatable, metatables)
globals.setmetatable = make.setmetatable(setmetatable, behind)

-- Of the ways to steer the collector only those that the next script does not feel.
function globals.collectgarbage(what, argument)
  if what == nil or what == "collect" or what == "count" or what == "step" then
    return collectgarbage(what or "collect", argument)
  end
  if what == "stop" or what == "restart" or what == "setpause" or what == "setstepmul" then
    return 0
  end
  error("bad argument #1 to 'collectgarbage' (invalid option '" .. tostring(what) .. "')", 2)
end

-- An error as the script may see it; a run that has to stop goes on stopping.
local function seen(raised)
  if type(raised) == "userdata" then
    local value, stops = plain(raised)
    if stops then
      error(raised, 0)
    end
    return value
  end
  return raised
end

-- Scripts find errors of commands as texts. Redis gives a second value with other tables.
globals.pcall = make.pcall(function(raised)
  raised = seen(raised)
  if type(raised) == "table" then
    local line = raised.err
    if type(line) == "string" or type(line) == "number" then
      return line
    end
    return raised, line
  end
  return raised
end)

globals.xpcall = make.xpcall(seen, function(handler)
  return function(raised)
    if type(raised) == "userdata" then
      local value, stops = plain(raised)
      if stops then
        return raised
      end
      raised = value
    end
    return handler(raised)
  end
end)

globals.load = host.load
globals.loadstring = host.loadstring

local libraries = { "bit", "cjson", "cmsgpack", "coroutine", "math", "redis", "string", "struct", "table" }
local tables = { redis = {}, bit = {}, cjson = {}, cmsgpack = {}, struct = {} }
for _, name in ipairs(libraries) do
  local t = tables[name] or {}
  for key, value in next, real[name] or {} do
    t[key] = value
  end
  tables[name] = t
  globals[name] = seal(t)
end

tables.coroutine.resume = make.resume(seen, resume)
for _, name in ipairs({ "create", "wrap" }) do
  tables.coroutine[name] = host.counted(tables.coroutine[name])
end

-- The only one that writes into an empty table without asking its metatable.
tables.table.insert = host.insert(behind)

-- Methods of strings: the metatable is shown as a stand-in, too.
local strings = getmetatable("")
strings.__index = tables.string
strings.__metatable = seal({ __index = globals.string })

local env, env_meta = seal(globals)
metatables[env] = seal({ __index = missing })
globals._G = env
globals.__redis__err__handler = host.fault
setmetatable(globals, { __index = missing })

-- While a library is loaded it finds only this.
local loading = setmetatable({}, { __index = missing })
local loading_redis = {}
loading.redis = seal(setmetatable(loading_redis, { __index = missing }))

-- For scripts that keep no reference to what all share: everything itself, with one look. Libraries are not behind stand-ins.
local function direct(names)
  local t = {}
  for name, value in next, globals do
    t[name] = value
  end
  for _, name in ipairs(names) do
    t[name] = tables[name]
  end
  return setmetatable(t, { __index = missing })
end

local fault = host.fault

-- What scripts find and functions do not.
local of_scripts = { globals = {}, redis = {} }
of_scripts.globals.__redis__err__handler = fault
for _, name in ipairs({ "breakpoint", "debug", "replicate_commands" }) do
  of_scripts.redis[name] = tables.redis[name]
end

return {
  env = env,
  globals = globals,
  redis = tables.redis,
  tables = tables,
  direct = direct,
  loading_redis = loading_redis,
  begin_load = function()
    env_meta.__index = loading
  end,
  end_load = function()
    env_meta.__index = globals
  end,
  show_to = function(is_script)
    for where, found in next, of_scripts do
      local t = where == "redis" and tables.redis or globals
      for name, value in next, found do
        t[name] = is_script and value or nil
      end
    end
  end,
  run = function(f)
    return xpcall(f, fault)
  end,
}
