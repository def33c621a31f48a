themes(() => {});
whereabouts();
copying();
